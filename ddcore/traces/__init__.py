"""Updates in columns and what holds them: batches, sorted and packed ones, consolidation, spilling, traces."""
