"""PCA of rows that several organisations keep on their own machines."""
