"""Shared by all tests. Kept empty of anything heavy: strictness is set in pyproject.toml."""
