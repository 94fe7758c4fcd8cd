"""Analyses of results: groups of clients, intervals, likelihood, monitoring and rotation."""
