"""Compaction, retention and integrity of a warehouse."""
