"""The subcommands of `flower-pca`. Each has a function that adds its parser and sets the function to run."""
