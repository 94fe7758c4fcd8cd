"""The subcommands of `flower-pca`: one module each, with `add`, which gives it a parser and says what to run."""
