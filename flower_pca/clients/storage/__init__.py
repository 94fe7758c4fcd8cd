"""What a node stores: memory between messages, and the account of what it has sent."""
