"""Whether this environment has what only the engine ``spark`` imports: the extra ``ddcore[spark]``."""

from __future__ import annotations

from importlib.util import find_spec

from ddcore.base.errors import UsageError

EXTRA = "pip install 'ddcore[spark]'"
_LIBRARIES = {"pyspark": "PySpark", "pandas": "pandas"}  # delta-spark is never imported: it names the jars


def lacking() -> list[str]:
    """Names of the libraries that are not installed; none is imported."""
    return [name for module, name in _LIBRARIES.items() if find_spec(module) is None]


def check_installed() -> None:
    """Raise UsageError where a library is not installed."""
    if names := lacking():
        raise UsageError(
            f"the engine spark needs {' and '.join(names)}, which {'is' if len(names) == 1 else 'are'} not installed",
            f'{EXTRA}; without Spark: --engine inline, or engine = "inline" under [run] in dd.toml',
        )
