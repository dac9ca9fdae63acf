"""Operators, one per module: their settings, arguments and steps. What is new in this folder is in the registry of the
tests at once."""
