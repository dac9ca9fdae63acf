"""Delta tables: their logs, heads and files."""
