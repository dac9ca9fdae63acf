"""Data files in which every byte is covered by a digest, and found where it lies."""
