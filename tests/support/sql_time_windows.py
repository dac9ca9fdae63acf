"""Windows of time in random queries: in the words of ddcore, and written out for an engine that has none."""

from __future__ import annotations

import random
from collections.abc import Sequence

from two_texts import both

__all__ = ["groups_by_window", "windows"]

_LENGTHS = ("1 hour", "90 minutes", "2 hours")


def windows(rng: random.Random, engine: str, columns: Sequence[str]) -> str:
    """A table q, whose moments are ``ts``, with its windows."""
    kind, length = rng.choice((_tumble, _hop, _session)), rng.choice(_LENGTHS)
    return kind(rng, engine, [*columns], length)


def groups_by_window(rng: random.Random, engine: str) -> str:
    """A query that groups by a window."""
    length = rng.choice(_LENGTHS)
    start, rest = f"TUMBLE_START(ts, INTERVAL '{length}')", f"q GROUP BY TUMBLE(ts, INTERVAL '{length}')"
    written_out = f"SELECT {_bin(engine, length)} AS w, count(a) AS n FROM q WHERE ts IS NOT NULL GROUP BY 1"
    return both(f"SELECT {start} AS w, count(a) AS n FROM {rest}", written_out)


def _bin(engine: str, length: str) -> str:
    name = "time_bucket" if engine == "duckdb" else "date_bin"
    return f"{name}(INTERVAL '{length}', ts, TIMESTAMP '1970-01-01')"


def _tumble(rng: random.Random, engine: str, columns: list[str], length: str) -> str:
    start = _bin(engine, length)
    ends = f"{start} AS window_start, {start} + INTERVAL '{length}' AS window_end"
    return both(f"TUMBLE(q, ts, INTERVAL '{length}')", f"(SELECT *, {ends} FROM q WHERE ts IS NOT NULL)")


def _hop(rng: random.Random, engine: str, columns: list[str], length: str) -> str:
    """Those that begin in the last hours before a moment, of which those stay that it is in."""
    every = rng.choice(("30 minutes", "45 minutes", "1 hour"))
    start = f"{_bin(engine, every)} - g.n * INTERVAL '{every}' AS window_start"
    end = f"window_start + INTERVAL '{length}'"
    rows = f"SELECT *, {end} AS window_end FROM (SELECT q.*, {start} FROM q, generate_series(0, 3) AS g(n)) AS w"
    chosen = ", ".join([*columns, "window_start", "window_end"])
    written_out = f"(SELECT {chosen} FROM ({rows} WHERE ts < {end}) AS w)"
    return both(f"HOP(q, ts, INTERVAL '{every}', INTERVAL '{length}')", written_out)


def _session(rng: random.Random, engine: str, columns: list[str], length: str) -> str:
    """A session begins where the moment before is too far away; the number of beginnings so far tells them apart."""
    key = rng.choice(("a", "u"))
    before = f"lag(ts) OVER (PARTITION BY {key} ORDER BY ts)"
    begins = f"CASE WHEN ts - {before} <= INTERVAL '{length}' THEN 0 ELSE 1 END"
    number = f"sum(b) OVER (PARTITION BY {key} ORDER BY ts)"
    rows = f"SELECT *, {number} AS s FROM (SELECT *, {begins} AS b FROM q WHERE ts IS NOT NULL) AS w"
    start = f"min(ts) OVER (PARTITION BY {key}, s) AS window_start"
    end = f"max(ts) OVER (PARTITION BY {key}, s) + INTERVAL '{length}' AS window_end"
    written_out = f"(SELECT {', '.join([*columns, start, end])} FROM ({rows}) AS w)"
    return both(f"SESSION(q, {key}, ts, INTERVAL '{length}')", written_out)
