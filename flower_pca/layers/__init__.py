"""What a run lays over its messages and answers: precision, noise, the air, numbers for single clients."""
