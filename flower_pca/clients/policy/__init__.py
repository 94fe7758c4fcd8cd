"""What a node allows, and how it holds a message against that."""
