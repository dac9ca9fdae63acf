"""Published tables: the present contents of outputs as plain Delta tables, changed by what each run changed."""
