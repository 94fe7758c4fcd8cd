"""What one does with results: groups of clients, advice on ranks."""
