"""From the graph of a program to the plan of its workers."""
