"""Columns at different places: one room from rows to doors, for one thought."""
