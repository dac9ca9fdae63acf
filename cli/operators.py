"""``dd log --operators``: what each operator of a run did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.cli.text import aligned, count, duration, size

if TYPE_CHECKING:
    from ddcore.io.ledger.profiles import OperatorRecord, ProfileRecord
    from ddcore.io.ledger.records import RunRecord

_NAMES = {"number": "operator", "taken": "updates_in", "sent": "updates_out"}
_HEADERS = ["", "operator", "from", "in", "out", "time", "memory", "state read", "written"]


def operators_json(profile: ProfileRecord) -> dict[str, Any]:
    """The operators, the loops and the differences by version and round, every field of each."""
    from dataclasses import asdict

    heat = profile.heat
    return {
        "operators": [
            {_NAMES.get(name, name): value for name, value in asdict(operator).items()}
            for operator in profile.operators
        ],
        "loops": [asdict(loop) for loop in profile.loops],
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
    loops, before = {loop.number: loop for loop in run.profile.loops}, list[int]()
    parents = {number: loop.parent for number, loop in loops.items()}
    rows = [_HEADERS]
    for operator in run.profile.operators:
        around = loops_around(parents, operator.loop)
        for depth, number in entered(before, around):
            rows.append(["", "│ " * depth + f"loop {loops[number].name.partition(' (')[0]}", *[""] * 7])
        before = around
        rows.append(
            [str(operator.number), "│ " * len(around) + operator.title, operator.source_line, *numbers_of(operator)]
        )
    yield from aligned(rows, [0, 3, 4, 5, 6, 7, 8], width, header=True)
    if run.profile.compiling:
        took = duration(run.profile.compiling)
        yield f"compiling kernels took {took}, once on this machine: no operator's time has it"
    for operator in run.profile.operators:
        if operator.key:
            share = 100 * operator.key_rows // max(1, operator.taken)
            yield f"{operator.number}: {share}% of the updates in are of one key: {operator.key}"


def loops_around(parents: Mapping[int, int], scope: int) -> list[int]:
    """The loops around, outermost first, by the loop around each."""
    return [*loops_around(parents, parents[scope]), scope] if scope else []


def entered(before: Sequence[int], around: Sequence[int]) -> list[tuple[int, int]]:
    """Which of the loops around begin here, by those around what was listed before: their depths, and the loops."""
    return [(depth, scope) for depth, scope in enumerate(around) if scope not in before[depth : depth + 1]]


def numbers_of(operator: OperatorRecord) -> list[str]:
    """Updates in and out, time, memory, and what was read and written of state."""
    return [
        "" if operator.kind == "input" else count(operator.taken),
        "" if operator.kind == "output" else count(operator.sent),
        duration(operator.seconds),
        size(operator.memory) if operator.memory else "",
        _rows(operator.rows_read, operator.bytes_read),
        _rows(operator.rows_written, operator.bytes_written),
    ]


def _rows(rows: int, bytes_: int) -> str:
    """Rows and bytes of state: ``1,234 in 13.2 kB``."""
    return f"{count(rows)} in {size(bytes_)}" if rows else ""
