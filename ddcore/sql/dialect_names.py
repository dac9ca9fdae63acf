"""The dialects of programs of SQL: this module loads nothing."""

DIALECTS = ("postgres", "spark", "databricks", "duckdb")
"""The first is that of programs that name none."""
