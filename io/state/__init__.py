"""Stored arrangements: runs of sorted updates, read where they lie, and what a fold adds to them."""
