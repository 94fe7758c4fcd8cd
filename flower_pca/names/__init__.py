"""What rows, columns and people are called, and how names are compared."""
