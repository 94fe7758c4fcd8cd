"""PCA as the first step of a Flower app that trains a classifier."""
