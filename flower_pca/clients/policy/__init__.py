"""What a node allows, and the checks of messages against it."""
