"""The fold: a worker that moves updates through the arrangements of a plan, and what it counts."""
