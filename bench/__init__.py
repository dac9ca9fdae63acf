"""The benchmarks of ``make bench``: ddcore and its peers, in turn, on one machine. See ``docs/performance.md``."""
