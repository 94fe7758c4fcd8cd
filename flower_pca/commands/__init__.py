"""The subcommands of `flower-pca`: each has an `add`, which gives it a parser and says what to run."""
