"""What all experiments share: reading data, test problems, and tables, curves and progress."""
