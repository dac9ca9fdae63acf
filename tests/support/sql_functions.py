"""The table of the tests of functions of SQL, and what engines answer for it: ``sql_functions_*.tsv``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

import ddcore as dd
from ddcore.base.errors import DdError
from ddcore.sql import program
from ddcore.text.cells import interval_text

NULL = "\\N"
SCHEMA: dict[str, Any] = {
    "id": pl.Int64, "a": pl.String, "b": pl.String, "n": pl.Int64, "m": pl.Int64, "x": pl.Float64,
    "p": pl.Decimal(12, 3), "d": pl.Date, "ts": pl.Datetime("us", "UTC"), "l": pl.List(pl.String),
    "k": pl.List(pl.Int64),
}  # fmt: skip
COLUMNS: dict[str, list[Any]] = {
    "a": ["Hello, World", "", None, "añb,c,,d", "a.b*c", "aXbXc", "  pad  ", "Über straße"],
    "b": ["o", "", "x", ",", None, "X", " ", "ß"],
    "n": [5, 0, None, -3, 12, 7, 1, 2],
    "m": [2, 3, 1, -2, None, 7, 0, 1],
    "x": [2.5, -2.5, None, 0.5, 1e10, -0.0, 3.999, -1.5],
    "p": [
        None if it is None else Decimal(it)
        for it in ("1.250", "-1.255", None, "0.005", "999999999.999", "-0.500", "2.999", "10.000")
    ],
    "d": [
        date(2024, 2, 29), date(1999, 12, 31), None, date(2000, 1, 1), date(1970, 1, 1), date(2023, 1, 1),
        date(1901, 1, 1), date(2001, 1, 1),
    ],
    "ts": [
        datetime(2024, 2, 29, 13, 5, 9, 250_000), datetime(1999, 12, 31, 23, 59, 59, 999_999), None,
        datetime(2000, 1, 1), datetime(1970, 1, 1, 0, 0, 1), datetime(2023, 1, 1, 12), datetime(1901, 1, 1, 6, 30),
        datetime(2001, 1, 1, 0, 15),
    ],
    "l": [["u", "v"], [], None, ["a", None], [None], ["x", "x", "y"], ["", "z"], ["ß"]],
    "k": [[1, 2], [], None, [3, None], [None], [7, 7], [0], [5, 4, 3]],
}  # fmt: skip
ROWS = list(zip(range(1, 9), *COLUMNS.values(), strict=True))


def answers(engine: str) -> Iterator[tuple[str, list[str]]]:
    """Each expression, and what an engine gives for it in each row."""
    for line in file_of(engine).read_text("utf-8").splitlines():
        expression, *values = line.split("\t")
        yield expression, values


def file_of(engine: str) -> Path:
    """The file of an engine's answers."""
    return Path(__file__).parents[1] / f"sql_functions_{engine}.tsv"


def frame() -> pl.DataFrame:
    aware = [tuple(it.replace(tzinfo=UTC) if isinstance(it, datetime) else it for it in row) for row in ROWS]
    return pl.DataFrame(aware, SCHEMA, orient="row").with_columns(version=0, diff=1)


def ours(expression: str, dialect: str = "postgres") -> list[Any]:
    """What the engine gives."""
    views = program(f"CREATE VIEW o AS SELECT id, {expression} AS v FROM t", dialect=dialect)
    return dd.replay(views, t=frame())["o"].sort("id")["v"].to_list()


def view_of_all(engine: str, every: int = 1, start: int = 0) -> str:
    """One view with all expressions of an engine, or one in ``every``, as the columns c0, c1, ..."""
    chosen = list(enumerate(answers(engine)))[start % every :: every]
    columns = ", ".join(f"{expression} AS c{number}" for number, (expression, _) in chosen)
    return f"CREATE VIEW o AS SELECT id, {columns} FROM t"


def ours_of(engine: str, every: int, start: int) -> dict[str, list[Any]]:
    """What ours gives for one in ``every`` expression of an engine, computed together; one by one where that fails."""
    chosen = list(enumerate(expression for expression, _ in answers(engine)))[start::every]
    try:
        rows = dd.replay(program(view_of_all(engine, every, start), dialect=engine), t=frame())["o"].sort("id")
    except DdError:
        return {expression: ours(expression, engine) for _, expression in chosen}
    return {expression: rows[f"c{number}"].to_list() for number, expression in chosen}


def differing(engine: str, every: int, start: int) -> dict[str, list[tuple[int, Any, str]]]:
    """The expressions of :func:`ours_of` with rows in which their values are not the engine's answers."""
    expected = dict(answers(engine))
    compared = {text: wrong(values, expected[text]) for text, values in ours_of(engine, every, start).items()}
    return {text: rows for text, rows in compared.items() if rows}


def wrong(values: Sequence[Any], answer: Sequence[str]) -> list[tuple[int, Any, str]]:
    """The rows in which a value is not the answer."""
    pairs = zip(ROWS, values, answer, strict=True)
    return [(row[0], value, expected) for row, value, expected in pairs if not same(value, expected)]


def written(value: Any) -> str:
    """A value of Python as the files have it."""
    if value is None:
        return NULL
    if isinstance(value, bool | datetime):
        return str(value).lower() if isinstance(value, bool) else str(value.replace(tzinfo=None))
    if isinstance(value, time | dict):
        text = interval_text(value) if isinstance(value, dict) else value.isoformat()
        return text.rstrip("0") if isinstance(value, time) and value.microsecond else text
    if isinstance(value, list):
        quoted = ('"' + it + '"' if it == "" or " " in str(it) else it for it in value)
        return "{" + ",".join("NULL" if it is None else str(it) for it in quoted) + "}"
    return str(value).replace("\t", "\\t").replace("\n", "\\n")


def same(value: Any, answer: str) -> bool:
    """Whether a value is what PostgreSQL writes."""
    if value is None or answer == NULL:
        return value is None and answer == NULL
    if isinstance(value, bool):
        return answer == str(value).lower()
    if isinstance(value, float):
        return answer == str(value) or math.isclose(value, float(answer), rel_tol=1e-14)
    if isinstance(value, int | Decimal):
        return Decimal(value) == Decimal(answer)
    if isinstance(value, datetime):
        return len(answer) > 10 and value.replace(tzinfo=None) == datetime.fromisoformat(answer)
    return written(value) == answer


_CALL = re.compile(r"(?<![\w'])([a-z_][a-z0-9_]*)\(", re.IGNORECASE)
_NO_FUNCTIONS = {"in", "cast", "decimal", "numeric", "any", "varchar"}
PAGE = Path(__file__).parents[2] / "docs" / "sql-functions.md"
ENGINES = ("postgres", "spark", "duckdb")


MISSING: dict[str, str] = {
    "random rand randn uuid gen_random_uuid shuffle randstr":
    "differ in each run; `md5(key)::uuid` of a key of the row stays the same",
    "current_user current_database current_setting version pg_sleep input_file_name monotonically_increasing_id":
    "are about the session or the files, not about a row",
    "hash xxhash64 crc32 hashtext":
    "are numbers of one engine's own; `md5` and `sha2` are the same everywhere",
    "levenshtein damerau_levenshtein jaccard jaro_similarity hamming":
    "go through two texts letter by letter; `flat_map` with a function in Python",
    "jsonb_set jsonb_insert jsonb_strip_nulls jsonb_pretty jsonb_path_query_first json_merge_patch from_json":
    "take JSON apart or change it, and JSON is text here; take texts out by `->>`, and build it anew of its parts",
    "trim_scale": "the type says the digits; `rtrim(rtrim(p::text, '0'), '.')` is the text",
    "list_reduce map_zip_with": "fold step by step; `unnest` or `explode`, and group",
    "typeof pg_typeof": "types have one name in all dialects here",
    "array_fill list_zip list_grade_up": "give lists of lists, or of rows without names",
    "xpath xml_is_well_formed from_xml from_csv to_tsvector int4range":
    "are of types that are not here: XML, search in texts, ranges",
    "get_byte set_byte set_bit aes_encrypt": "take bytes apart; `encode` and `decode` give them as text",
    "pg_size_pretty format_bytes quote_ident parse_ident unistr conv to_base gamma erf expm1":
    "are rare in views; put them together of others, or use `flat_map` in Python",
}  # fmt: skip
"""Names of functions of the engines that are not here, and why, or what to write instead."""


def called(engine: str) -> set[str]:
    """The functions that the expressions of an engine call."""
    calls = (name.lower() for expression, _ in answers(engine) for name in _CALL.findall(expression))
    return {name for name in calls if name not in _NO_FUNCTIONS}


def page() -> str:
    """The page of the functions of each dialect."""
    names = {engine: called(engine) for engine in ENGINES}
    lines = [
        "# Functions of SQL, by dialect",
        "",
        "Functions of single rows that programs in [SQL](sql.md) may call, by [dialect](sql.md#dialects); those of",
        "`spark` are those of `databricks`, too. Each is compared with the own answers of the engine, which",
        "`tests/sql_functions_*.tsv` keep: what they are called with there is known to mean the same. Aggregates,",
        "windows and operators: see [what is supported](sql.md#what-is-supported).",
        "",
        "`PYTHONPATH=tests/support python -m sql_functions` writes this page.",
        "",
        "| | postgres | spark | duckdb |",
        "| --- | --- | --- | --- |",
    ]
    for name in sorted(set().union(*names.values())):
        lines.append(f"| `{name}` | " + " | ".join("yes" if name in names[item] else "" for item in ENGINES) + " |")
    lines += ["", "## What is not here", "", "| functions | they |", "| --- | --- |"]
    lines += [f"| {', '.join(f'`{name}`' for name in item.split())} | {why} |" for item, why in MISSING.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
