"""The parts of a run: which comes next, what it commits, its profile, and its data tests."""
