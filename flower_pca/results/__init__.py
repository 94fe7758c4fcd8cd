"""What a run returns, as values that read, save and project."""
