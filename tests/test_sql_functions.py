"""Functions of SQL give what PostgreSQL gives: ``sql_functions.tsv`` has its answers for a small table.

``PGHOST=... python tests/test_sql_functions.py`` asks a PostgreSQL for all of them again, and writes the file.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import ddcore as dd
from ddcore.base.errors import ProgramError
from ddcore.sql import program

ANSWERS = Path(__file__).with_name("sql_functions.tsv")
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


def answers() -> Iterator[tuple[str, list[str]]]:
    """Each expression, and what PostgreSQL gives for it in each row, as it writes it."""
    for line in ANSWERS.read_text("utf-8").splitlines():
        expression, *values = line.split("\t")
        yield expression, values


def frame() -> pl.DataFrame:
    aware = [tuple(it.replace(tzinfo=UTC) if isinstance(it, datetime) else it for it in row) for row in ROWS]
    return pl.DataFrame(aware, SCHEMA, orient="row").with_columns(version=0, diff=1)


def ours(expression: str) -> list[Any]:
    views = program(f"CREATE VIEW o AS SELECT id, {expression} AS v FROM t")
    return dd.replay(views, t=frame())["o"].sort("id")["v"].to_list()


def same(value: Any, answer: str) -> bool:  # noqa: PLR0911  (one kind, one return)
    """Whether a value is what PostgreSQL writes."""
    if value is None or answer == NULL:
        return value is None and answer == NULL
    if isinstance(value, bool):
        return answer == str(value).lower()
    if isinstance(value, float):
        return math.isclose(value, float(answer), rel_tol=1e-14)
    if isinstance(value, int | Decimal):
        return Decimal(value) == Decimal(answer)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) == datetime.fromisoformat(answer)
    if isinstance(value, list):
        quoted = ('"' + it + '"' if it == "" or " " in str(it) else it for it in value)
        return "{" + ",".join("NULL" if it is None else str(it) for it in quoted) + "}" == answer
    return str(value) == answer


@pytest.mark.parametrize(("expression", "answer"), [*answers()], ids=[expression for expression, _ in answers()])
def test_functions_give_what_postgresql_gives(expression: str, answer: list[str]) -> None:
    values = ours(expression)
    wrong = [
        (row[0], value, expected)
        for row, value, expected in zip(ROWS, values, answer, strict=True)
        if not same(value, expected)
    ]
    assert not wrong


def asked(expressions: list[str]) -> list[list[str]]:
    """What the PostgreSQL of PGHOST gives, one query for each expression."""
    kinds = {"id": "bigint", "a": "text", "b": "text", "n": "int", "m": "int", "x": "double precision",
             "p": "numeric(12,3)", "d": "date", "ts": "timestamp", "l": "text[]", "k": "bigint[]"}  # fmt: skip

    def spelled(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list):
            return "ARRAY[" + ",".join(map(spelled, value)) + "]"
        return str(value) if isinstance(value, int | float | Decimal) else "'" + str(value).replace("'", "''") + "'"

    rows = ", ".join(
        "(" + ", ".join(f"{spelled(value)}::{kind}" for value, kind in zip(row, kinds.values(), strict=True)) + ")"
        for row in ROWS
    )
    script = [f"CREATE TEMP TABLE t AS SELECT * FROM (VALUES {rows}) AS t ({', '.join(kinds)});"]
    script += [f"SELECT ({expression})::text FROM t ORDER BY id;" for expression in expressions]
    command = ["psql", "-U", "postgres", "-qAt", "-P", f"null={NULL}", "-v", "ON_ERROR_STOP=1"]
    done = subprocess.run(command, input="\n".join(script), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return [lines[at : at + len(ROWS)] for at in range(0, len(lines), len(ROWS))]


REFUSED = {
    r"a ~ '(a)\1'": r"\1 in a regular expression",
    "regexp_replace(a, 'a|ab', 'x')": "whose match is taken",
    "regexp_replace(a, 'a+?', 'x')": "whose match is taken",
    "a ~ '('": "is no regular expression",
    "a ~ b": "a regular expression that is no literal",
    "to_char(ts, 'Day')": "a pattern of",
    "to_char(ts, 'YYYY Month')": "a pattern of",
    "split_part(a, ',', 0)": "split_part() of a field whose number is no literal, or 0",
    "translate(a, b, 'x')": "translate() of letters that are no literals",
    "format('%5s', a)": "format() with anything but %s and %%",
    "format('%s %s', a)": "too few values",
    "trunc(x, 2)": "trunc() to this number of digits",
    "n >> m": ">> by what is no literal",
    "date_bin('1 month', ts, ts)": "date_bin() by what is no literal interval",
    "date_bin('0 days', ts, ts)": "the interval is not positive",
    "octet_lenght(a)": "did you mean 'octet_length'?",
    "make_date(1, 2)": "make_date() takes 3 values",
    "a[1]": "not a list",
    "l[1:2]": "this expression",
    "a ~ '[[:punct:]]'": "[:punct:] in a regular expression",
    "l[n + 1]": "the element of a list by a number that is neither",
    "k[1] + a": "is string, not int64",
}


@pytest.mark.parametrize("expression", [*REFUSED])
def test_what_cannot_be_as_in_postgresql_is_refused_by_name(expression: str) -> None:
    with pytest.raises(ProgramError) as caught:
        ours(expression)
    assert REFUSED[expression] in f"{caught.value} {caught.value.hint}"


if __name__ == "__main__":
    known = [expression for expression, _ in answers()]
    lines = ["\t".join([expression, *values]) for expression, values in zip(known, asked(known), strict=True)]
    ANSWERS.write_text("\n".join(lines) + "\n", "utf-8")
