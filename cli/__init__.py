"""The commands a person types; one file per command."""
