"""The subcommands of `flower-pca`: each has an `add`, which gives it a parser and what to run."""
