"""The foundation of the package, without knowledge of runs: errors, checks, linear algebra and saved files."""
