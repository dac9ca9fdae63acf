"""``dd log --operators``: what each operator of a run did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ddcore.cli.status import size
from ddcore.cli.text import aligned, count

if TYPE_CHECKING:
    from ddcore.io.ledger.profiles import OperatorRecord, ProfileRecord
    from ddcore.io.ledger.records import RunRecord

__all__ = ["duration", "listing", "operators_json"]

_NAMES = {"number": "operator", "taken": "updates_in", "sent": "updates_out"}
_HEADERS = ["", "operator", "from", "in", "out", "time", "memory", "state read", "written"]


def operators_json(profile: ProfileRecord) -> dict[str, Any]:
    """The operators, the loops and the differences by version and round, every field of each."""
    from dataclasses import asdict

    heat = profile.heat
    return {
        "operators": [
            {_NAMES.get(name, name): value for name, value in asdict(each).items()} for each in profile.operators
        ],
        "loops": [asdict(each) for each in profile.loops],
        "compiling": profile.compiling,
        "differences": {
            "versions": heat.versions,
            "rounds": heat.rounds,
            "cells": [
                {"version": version, "round": current if current >= 0 else None, "differences": number}
                for version, current, number in heat.cells
            ],
        },
    }


def listing(run: RunRecord, width: int | None) -> Iterator[str]:
    """The operators of a run as a table, in the order of the plan; those of a loop are indented."""
    loops, shown = {each.number: each for each in run.profile.loops}, list[int]()
    rows = [_HEADERS]
    for each in run.profile.operators:
        around = _around({number: loop.parent for number, loop in loops.items()}, each.loop)
        for depth, number in enumerate(around):
            if number not in shown[depth : depth + 1]:
                rows.append(["", "│ " * depth + f"loop {loops[number].name.partition(' (')[0]}", *[""] * 7])
        shown = around
        rows.append(_row(each, len(around)))
    yield from aligned(rows, [0, 3, 4, 5, 6, 7, 8], width, header=True)
    if run.profile.compiling:
        took = duration(run.profile.compiling)
        yield f"compiling kernels took {took}, once on this machine: no operator's time has it"
    for each in run.profile.operators:
        if each.key:
            share = 100 * each.key_rows // max(1, each.taken)
            yield f"{each.number}: {share}% of the updates in are of one key: {each.key}"


def _around(parents: dict[int, int], scope: int) -> list[int]:
    """The loops around, outermost first."""
    scopes: list[int] = []
    while scope:
        scopes.insert(0, scope)
        scope = parents[scope]
    return scopes


def _row(each: OperatorRecord, depth: int) -> list[str]:
    source, end = each.kind == "input", each.kind == "output"
    return [
        str(each.number),
        "│ " * depth + each.title,
        each.place,
        "" if source else count(each.taken),
        "" if end else count(each.sent),
        duration(each.seconds),
        size(each.memory) if each.memory else "",
        _rows(each.rows_read, each.bytes_read),
        _rows(each.rows_written, each.bytes_written),
    ]


def _rows(rows: int, bytes_: int) -> str:
    """Rows and bytes of state: ``1,234 in 13.2 kB``."""
    return f"{count(rows)} in {size(bytes_)}" if rows else ""


def duration(seconds: float) -> str:
    """Seconds for people: ``1.4 s``, ``12 ms``."""
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    if seconds >= 0.001 or seconds == 0:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.00005 else "<0.1 ms"
