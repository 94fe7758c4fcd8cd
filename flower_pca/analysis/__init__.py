"""What one does with results: groups of clients."""
