"""What ``dd explain`` says of rows: the input rows on which they rest, or the changes of inputs that moved them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.cli.derivations import json_derivation, plain_row, text_derivation
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.row_key import key_text
from ddcore.cli.text import aligned, cell, count
from ddcore.io.project.times import Time, json_time, shown
from ddcore.text.wording import listed

if TYPE_CHECKING:
    import polars as pl

    from ddcore.explaining import Explanation
    from ddcore.jobs.explain import Explaining, Origin

MOST_INPUTS = 20  # rows of an input that people are shown unless they ask for all
_SOURCES = 3  # that are named of several


def tell_rows(
    out: Output,
    explaining: Explaining,
    time: Time,
    key: pl.DataFrame,
    origin: str,
    *,
    limit: int,
    check: bool,
    whole: bool,
) -> None:
    """The rows with the values of a key at a time, each with what it rests on. UsageError where there is none."""
    explaining.require(time, origin)
    rows, dims = explaining.rows(time, key), explaining.plan.dims
    if rows.is_empty():
        words = " ".join(shlex.quote(f"{name}={cell(key[name][0])}") for name in key.columns)
        raise UsageError(
            f"{explaining.output} has no row with {key_text(key)} at {explaining.names.named(time)}",
            f"rows that are there: ddcore show {explaining.output} --at {shown(time, dims)}; if it was there at A and "
            f"not at B, what took it away: ddcore explain {explaining.output} A B {words}",
        )
    _tell_head(out, explaining, at=json_time(time, dims), rows=len(rows), **explaining.names.fields(time))
    if not out.json:
        out.data(f"at {explaining.names.shown(time)}")
    part = rows.head(limit) if limit else rows
    for number in range(len(part)):
        if out.unread:
            return
        row = part[number]
        explanation = explaining.explanation(time, row.drop("diff"))
        _tell_explanation(out, explaining, explanation, row, time, whole=whole)
        if check:
            _tell_check(out, explaining, explanation, row, time)
    if len(rows) > len(part):
        out.say(f"... and {count(len(rows) - len(part))} more rows with {key_text(key)}; all of them with --limit 0")


def _tell_head(out: Output, explaining: Explaining, **fields: Any) -> None:
    if out.json:
        schema = {name: str(kind) for name, kind in explaining.schema.items()}
        out.record(schema_version=SCHEMA_VERSION, output=explaining.output, schema=schema)
        out.record(**fields)
    else:
        columns = ", ".join(f"{name} {kind}" for name, kind in explaining.schema.items())
        out.data((f"{explaining.output} ({columns})", "bold"))


def _tell_explanation(
    out: Output, explaining: Explaining, explanation: Explanation, row: pl.DataFrame, time: Time, *, whole: bool
) -> None:
    values = row.drop("diff").row(0, named=True)
    if out.json:
        out.record(row=plain_row(values), count=row["diff"][0], rests_on=_total(explanation.inputs))
    else:
        out.data()
        total = _total(explanation.inputs)
        out.data("row ", (cell(values), "bold"), f" rests on {count(total)} input {'row' if total == 1 else 'rows'}:")
    _tell_inputs(out, explaining, explanation.inputs, None, time, sign=False, whole=whole)
    if out.json:
        json_derivation(out, explanation)
    else:
        out.data()
        text_derivation(out, explanation, whole=whole)
    if explanation.keeps_away:
        lines = listed(explanation.keeps_away)
        if out.json:
            out.record(keeps_rows_away=explanation.keeps_away)
        else:
            out.say(f"{lines} keeps rows away: input rows that are not there are a reason, too, and are not named")


def _total(inputs: Mapping[str, pl.DataFrame]) -> int:
    return sum(map(len, inputs.values()))


def _tell_inputs(
    out: Output, explaining: Explaining, inputs: Mapping[str, pl.DataFrame], after: Time | None, until: Time, *,
    sign: bool, whole: bool,
) -> None:  # fmt: skip
    """The rows of inputs, with the time at which each came and the sources ingested then. People see some of each input
    unless they want the ``whole``.
    """
    lines, colors, left = [], [], []
    for name, frame in inputs.items():
        columns = [column for column in frame.columns if column != "diff"]
        rows = frame.sort([column for column in columns if not explaining.schemas[name][column].is_nested])
        if not (out.json or whole) and len(rows) > MOST_INPUTS:
            left.append(f"{count(len(rows) - MOST_INPUTS)} more of {name}")
            rows = rows.head(MOST_INPUTS)
        for row, origin in zip(rows.iter_rows(named=True), explaining.origins(name, rows, after, until), strict=True):
            diff = row.pop("diff")
            if out.json:
                fields = _origin(explaining, origin)
                out.record(input=name, row=plain_row(row), **{"diff" if sign else "count": diff}, **fields)
                continue
            times = "" if abs(diff) == 1 else f"{count(abs(diff))} times" if not sign else count(abs(diff))
            mark = [("+" if diff > 0 else "-") + times] if sign else []
            where = [] if origin is None else [explaining.names.named(origin.time), _came_from(origin)]
            lines.append([*mark, name, cell(row), *([] if sign else [times]), *where, *([""] * (2 - len(where)))])
            colors.append(("green" if diff > 0 else "red") if sign else "")
    if lines and not sign and not any(line[2] for line in lines):
        lines = [[*line[:2], *line[3:]] for line in lines]
    for color, line in zip(colors, aligned(lines, width=None), strict=True):
        out.data((f"  {line}", color))
    if left:
        out.data(f"  ... and {listed(left)}; all of them with --all")


def _came_from(origin: Origin) -> str:
    """The source of a row, or the sources of which one had it."""
    sources, numbers = origin.sources, [str(record.number) for record in origin.ingests]
    if len(sources) < 2:
        return listed(sources)
    ingests = f"ingest{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
    more = f" and {count(len(sources) - _SOURCES)} more" if len(sources) > _SOURCES else ""
    return f"one of {count(len(sources))} sources of {ingests}: {', '.join(sources[:_SOURCES])}{more}"


def _origin(explaining: Explaining, origin: Origin | None) -> dict[str, Any]:
    dims = explaining.plan.dims
    name = "version" if len(dims) == 1 else "time"
    if origin is None:
        return {name: None, "label": None, "ingests": [], "sources": []}
    label = explaining.names.fields(origin.time)["label"]
    came = {"ingests": [record.number for record in origin.ingests], "sources": list(origin.sources)}
    return {name: json_time(origin.time, dims), "label": label, **came}


def _tell_check(out: Output, explaining: Explaining, explanation: Explanation, row: pl.DataFrame, time: Time) -> None:
    suffices, minimal, without = explaining.check_explanation(time, row, explanation)
    if out.json:
        out.record(suffices=suffices, minimal=minimal, there_without=without)
        return
    out.data()
    out.data("checked: with these rows alone the row is " + ("there" if suffices else "NOT there"))
    out.data("checked: without any one of them it is " + ("gone" if minimal else "STILL there"))
    stays = "still there: it also rests on others" if without else "gone"
    out.data(f"checked: with all input rows but these it is {stays}")


def tell_causes(
    out: Output, explaining: Explaining, span: tuple[Time | None, Time], key: pl.DataFrame, *, whole: bool
) -> None:
    """The rows with the values of a key that changed between two versions, and the changes of inputs behind it."""
    start, end = span
    for time, name in ((start, "A"), (end, "B")):
        if time is not None:
            explaining.require(time, name)
    dims, names = explaining.plan.dims, explaining.names
    moved = explaining.moved(start, end, key)
    ends = {"from": json_time(start, dims), "to": json_time(end, dims)}
    _tell_head(out, explaining, **ends, rows=len(moved))
    if not out.json:
        out.data(f"{'' if start is None else names.shown(start)}..{names.shown(end)}  {key_text(key)}")
        if moved.is_empty():
            out.say(f"no row with {key_text(key)} changed between these versions")
        else:
            out.data()
    for row in moved.iter_rows(named=True):
        diff = row.pop("diff")
        if out.json:
            out.record(row=plain_row(row), diff=diff)
        else:
            mark = ("+" if diff > 0 else "-") + ("" if abs(diff) == 1 else count(abs(diff)))
            out.data((f"{mark}  {cell(row)}", "green" if diff > 0 else "red"))
    if moved.is_empty():
        return
    causes = explaining.causes(start, end, key)
    if not out.json:
        total = _total(causes.inputs)
        out.data()
        out.data(f"moved by {count(total)} of {count(causes.all_changes)} changed input rows:")
    _tell_inputs(out, explaining, causes.inputs, start, end, sign=True, whole=whole)
