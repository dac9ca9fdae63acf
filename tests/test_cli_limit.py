"""``--limit``: the first rows of the full listing, whatever the values are."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ddcore.base.schema import Schema, parse_type
from ddcore.cli import diff, show
from ddcore.cli.output import Output
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.readable import Readable
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.times import time_of
from ddcore.io.reading.folded import FoldedLog

NAMES = VersionNames(("version",))
VALUES: dict[str, list[Any]] = {
    "int64": [-(2**63) + 1, -1, 0, 1, 2**63 - 1],
    "float64": [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5, 5e-324],
    "bool": [False, True],
    "string": ["", "a", "A", "null", "é", " x", "\n"],
    "binary": [b"", b"\x00", b"\xff"],
    "date": [date(1, 1, 1), date(2026, 1, 1)],
    "timestamp": [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    "decimal(10,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("99999999.99")],
}


def _log(dice: random.Random, folder: Path) -> FoldedLog:
    """A log of random rows, nulls included, in two versions."""
    kinds = dice.sample(sorted(VALUES), dice.randrange(1, 4))
    schema: Schema = {f"c{index}": parse_type(kind) for index, kind in enumerate(kinds)}
    size = dice.randrange(1, 30)
    columns = {
        name: pl.Series(
            [dice.choice([None, *VALUES[kind]]) for _ in range(size)], dtype=schema[name].polars, strict=False
        )
        for name, kind in zip(schema, kinds, strict=True)
    }
    diffs = [dice.choice([1, 1, 2]) for _ in range(size)]
    updates = pl.DataFrame({**columns, "version": [dice.randrange(2) for _ in range(size)], "diff": diffs})
    log = ChangeLog(folder, schema, writer=Writer())
    return FoldedLog("output", log, log.append(updates, 1, base=None), Readable(("version",), ((0,),), ((2,),), NAMES))


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(25))
def test_limited_is_the_head_of_the_full_listing(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)
    log = _log(dice, tmp_path / "log")
    keys = [dice.choice([*log.schema])] if dice.random() < 0.5 else []
    size = len(log.accumulate(time_of(1)))
    _lines(capsys)
    for limit in {1, 2, size, size + 1, dice.randrange(1, size + 1)}:
        show._json_rows(Output(json=True), log, log.rows(None, time_of(1)), time_of(1), 0)
        full = _lines(capsys)
        assert len(full) == 2 + size
        show._json_rows(Output(json=True), log, log.rows(None, time_of(1)), time_of(1), limit)
        assert _lines(capsys) == full[: 2 + limit]
        diff._json_rows(Output(json=True), log, log.rows(time_of(0), time_of(1), None, keys), keys, 0)
        full = _lines(capsys)
        diff._json_rows(Output(json=True), log, log.rows(time_of(0), time_of(1), None, keys), keys, limit)
        assert _lines(capsys) == full[:limit]


def test_nulls_come_first_and_nan_last(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", {"x": parse_type("float64")}, writer=Writer())
    values = [1.0, None, float("nan"), -1.0]
    version = log.append(pl.DataFrame({"x": values, "version": [0] * 4, "diff": [1] * 4}), 1, base=None)
    rows = FoldedLog("output", log, version, Readable(("version",), ((0,),), ((1,),), NAMES)).rows(None, time_of(0))
    order = pl.concat(rows)["x"].to_list()
    assert order[:3] == [None, -1.0, 1.0]
    assert math.isnan(order[3])
    assert rows.head(2)["x"].to_list() == [None, -1.0]
