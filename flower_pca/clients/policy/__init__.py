"""The rules of a node, and the checks of messages against these rules."""
