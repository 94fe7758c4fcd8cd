"""The subcommands of `flower-pca`. Each has a function `add` that adds its parser and sets the function to run."""
