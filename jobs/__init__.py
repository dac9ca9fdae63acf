"""What Spark runs: ingest, replay, and the session they run in."""
