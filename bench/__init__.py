"""What ``make bench`` runs: ours and its peers, in turn, on one machine. ``docs/performance.md`` tells what and why."""
