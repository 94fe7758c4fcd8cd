"""An app of the form of Flower's quickstart examples, with PCA before the training."""
