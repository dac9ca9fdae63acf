"""Expressions of single rows: their trees, types, exact evaluation, and what they may be made of."""
