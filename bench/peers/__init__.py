"""Programs to measure against, the generator of their input, and a check of their results."""
