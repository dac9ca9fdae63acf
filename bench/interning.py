"""Ids for 10 million integers and for a million strings of 40 characters: the three forms (sources: McSherry 2018).

The author measured the integers on a laptop, from the command to the last id. Ours is processor time, which a busy
machine changes least; one thread does nearly all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.interning_engine import FORMS
from bench.measure import Result, in_turn
from bench.project import engine

AUTHOR = {"all": (12.51, 1_310), "changes": (15.04, 578), "edits": (6.52, 621)}
"""Seconds and MB that the author measured, by form."""
NAMES = {"all": "all rows go round", "changes": "changes to all rows", "edits": "rows that lost go round"}


def run(rounds: int) -> Iterator[Result]:
    """Each form on both kinds of rows, in turn; and ours with ids of 36 bits: those and the row fit into one word."""
    settings = [(form, rows, 63) for rows in ("integers", "strings") for form in FORMS]
    named = {" ".join(map(str, setting)): setting for setting in [*settings, ("edits", "integers", 36)]}
    medians = in_turn(
        {name: partial(engine, "interning_engine", *item[:2], "--bits", item[2]) for name, item in named.items()},
        rounds,
    )
    for name, (form, rows, bits) in named.items():
        figures, (seconds, megabytes) = medians[name], AUTHOR[form]
        what = "10M integers" if rows == "integers" else "1M strings of 40 characters"
        peer = f"McSherry 2018, on its author's laptop ({megabytes} MB)"
        if rows == "strings":
            peer, seconds = NAMES["edits"], medians["edits strings 63"]["fold_cpu_s"]
        yield Result(
            f"ids of {what}, {bits} bits, {NAMES[form]}", figures["fold_cpu_s"], peer, seconds, rounds,
            ours_peak_mib=figures["peak_mib"], ours_bytes_per_row=figures["bytes_per_row"],
        )  # fmt: skip
