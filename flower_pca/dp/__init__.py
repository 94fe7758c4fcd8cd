"""Differential privacy of single rows: what a budget buys, and the noise that it asks for."""
