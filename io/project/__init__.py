"""A project: ``dd.toml``, the program, and its kept plans."""
