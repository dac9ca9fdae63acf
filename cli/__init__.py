"""The commands a person types; one file per command. Nothing heavy is imported before a command runs."""
