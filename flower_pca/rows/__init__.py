"""What a client holds: its rows, at rest or as they arrive, in the frame that a message brings."""
