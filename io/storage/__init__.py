"""Files and objects of a warehouse, their addresses, and the lock."""
