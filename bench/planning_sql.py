"""What planning of SQL costs, in milliseconds of processor time: queries of SQLite's sqllogictest suite, and texts that
grow: joins of many tables, many views, many terms.

``python -m bench.planning_sql [seed]``. The suite is that of ``make test-slt``.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bench.project import REPOSITORY
from ddcore.base.errors import DdError
from ddcore.planning.planner import build
from ddcore.sql import program

sys.path.insert(0, str(REPOSITORY / "tests" / "support"))
import slt
from sqllogictest import Query, Statement

FILES, OF_EACH = 60, 6
COLUMNS = {"k": "int64", "j": "int64", "v": "int64"}


def main() -> None:
    """Print a line for the queries of the suite, and one for each size of a text."""
    gc.set_threshold(200_000)  # as a command does, so that no query pays for what imports have created
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    times = sorted(_suite(seed))
    p99 = times[int(len(times) * 0.99)]
    print(
        f"{len(times)} queries of sqllogictest: median {statistics.median(times):.1f} ms, 99 of 100 within {p99:.1f} ms"
    )
    for name, text, sizes in TEXTS:
        found = [f"{size}: {_time(partial(program, text(size)), _tables(size)):,.0f} ms" for size in sizes]
        print(f"{name}: {', '.join(found)}")


def _time(make: Callable[[], Any], schemas: Mapping[str, Mapping[str, str]]) -> float:
    start = time.process_time_ns()
    build(make(), schemas)
    return (time.process_time_ns() - start) / 1e6


def _tables(size: int) -> dict[str, dict[str, str]]:
    return {f"t{number}": COLUMNS for number in range(min(size, 64))}


def _suite(seed: int) -> Iterator[float]:
    """The time of each query of a sample that is accepted; each is planned once."""
    rng = random.Random(seed)
    with zipfile.ZipFile(slt.fetched()) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".test"))
        for name in rng.sample(names, FILES):
            tables = slt.Tables()
            for record in slt.sampled(archive.read(name).decode(), OF_EACH, rng):
                if isinstance(record, Statement):
                    tables.execute(record)
                else:
                    yield from _planned(tables, record)


def _planned(tables: slt.Tables, query: Query) -> Iterator[float]:
    schemas = tables.schemas()
    moments = slt.Moments(schemas, tables.views())
    try:
        yield _time(lambda: moments.program_of(query), schemas)
    except DdError:
        return


def _joins(kind: str) -> Callable[[int], str]:
    def text(size: int) -> str:
        joins = " ".join(f"{kind} t{number} ON t{number - 1}.k = t{number}.j" for number in range(1, size))
        return f"CREATE VIEW r AS SELECT {', '.join(f't{n}.v AS v{n}' for n in range(size))} FROM t0 {joins}"

    return text


def _views(size: int) -> str:
    rest = (
        f"CREATE VIEW v{n} AS SELECT a.k, sum(a.v + b.v) AS v FROM v{n - 1} a JOIN t0 b ON a.k = b.k WHERE a.v > {n}"
        " GROUP BY a.k;"
        for n in range(1, size)
    )
    return f"CREATE VIEW v0 AS SELECT k, v FROM t0;{''.join(rest)}"


def _terms(size: int) -> str:
    return f"CREATE VIEW r AS SELECT k FROM t0 WHERE {' OR '.join(f'(k = {n} AND v > {n})' for n in range(size))}"


def _sums(size: int) -> str:
    return f"CREATE VIEW r AS SELECT k, {', '.join(f'sum(v + {n}) AS s{n}' for n in range(size))} FROM t0 GROUP BY k"


TEXTS: list[tuple[str, Callable[[int], str], tuple[int, ...]]] = [
    ("tables, JOIN", _joins("JOIN"), (16, 32, 64)),
    ("tables, LEFT JOIN", _joins("LEFT JOIN"), (16, 32, 64)),
    ("views, each over the one before", _views, (50, 100, 200)),
    ("terms of an OR", _terms, (250, 500, 1000)),
    ("sums of a GROUP BY", _sums, (250, 500, 1000)),
]


if __name__ == "__main__":
    main()
