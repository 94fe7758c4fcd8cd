"""A client's rows, stored or arriving in batches, in the frame of a message."""
