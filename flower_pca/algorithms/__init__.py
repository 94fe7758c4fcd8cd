"""One algorithm per file, both halves side by side."""
