"""PCA of rows that several organizations keep on their own machines."""
