"""The steps of an ingest: what its sources are, what of them is new, what is refused, and the commit."""
