"""What blocks and linear nodes do to update batches, one operator per module."""
