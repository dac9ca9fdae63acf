"""What a program is written in: collections, aggregates, constants, data tests, and the graph they build."""
