"""The storage of a node: its memory between messages, and its records of what it has sent."""
