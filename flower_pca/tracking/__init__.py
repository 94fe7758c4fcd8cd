"""Steps over a stream: subspaces that move, followed through gaps and outliers."""
