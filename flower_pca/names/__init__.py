"""The names of rows, columns and people, and how names are compared."""
