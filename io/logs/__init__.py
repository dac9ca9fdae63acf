"""Change logs: updates of inputs and outputs, their counts, corrections and restatements."""
