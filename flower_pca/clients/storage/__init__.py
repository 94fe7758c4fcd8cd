"""What a node keeps: memory between messages, and the account of what has left it."""
