"""What everything else rests on: errors, types of columns, times, threads, memory, the cache folder."""
