"""Spark itself: its session and Java process, their settings, what executors get, and its side of ingest."""
