"""Interning in the engine: ``python -m bench.interning_engine FORM ROWS`` prints one JSON object.

``FORM`` is one of three forms (sources: McSherry 2018): "all" carries all rows round the loop, "changes"
computes how they change from round to round, and "edits" is ddcore's own, which carries only the rows that lost.
``ROWS`` is "integers" or "strings". A separate process, so that its peak memory is that of one form. As there,
nothing reads the ids. Importing libraries, loading kernels and making the rows is not timed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
import polars as pl

import ddcore as dd
from bench.bfs_engine import Clock
from bench.measure import peak_mib
from ddcore import col
from ddcore.base.digests import digest
from ddcore.jobs.setup import compile_kernels
from ddcore.operators.base import Dataflow
from ddcore.operators.block import Block
from ddcore.operators.evaluations import Evaluations, Targets
from ddcore.operators.intern import Contest, ContestStep
from ddcore.operators.reduction import ReductionStep
from ddcore.program.collection import Collection
from ddcore.program.numbering import MOST_TRIES, Numbering
from ddcore.traces.sorted_batch import SortedBatch
from ddcore.traces.trace import Rows

COUNTS = {"integers": 10_000_000, "strings": 1_000_000}
FORMS = ("all", "changes", "edits")


class All(Contest):
    """All rows of each group, of which those that lose are at the next round."""

    name = "all"

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a block."""
        return _AllStep(self, plan, block, port)


class Changes(Contest):
    """Of each row that loses -1 at its round and +1 at the next."""

    name = "changes"

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a block."""
        return _ChangesStep(self, plan, block, port)


class _AllStep(ContestStep):
    def relevant(self, state: object, new: SortedBatch) -> SortedBatch | None:
        return new

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        words = np.take(history.words, rows, axis=1)
        words[0, self.losers(evals, rows, history)] += 1
        return Targets(evals, words, counts)


class _ChangesStep(ContestStep):
    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        lost = np.sort(self.losers(evals, rows, history))
        words = np.repeat(np.take(history.words, rows[lost], axis=1), 2, axis=1)
        words[0, 1::2] += 1
        signs = np.tile(np.array([-1, 1]), len(lost))
        return Targets(np.repeat(evals[lost], 2), words, signs * np.repeat(counts[lost], 2))


def carrying_all(rows: Collection, bits: int, operator: type[Contest]) -> Collection:
    """The first two forms, which begin the loop with all rows."""
    numbering = Numbering("id", bits, None, MOST_TRIES)

    def body(pairs: Collection) -> Collection:
        proposals = numbering.propose(pairs)
        contest = operator(proposals.schema, digest(proposals.columns), ("id",), False, False)
        result = proposals._add(contest).drop("id")
        return result if operator is All else pairs.concat(result)

    start = numbering.first(rows).drop("id")
    return numbering.propose(start.iterate(body)).drop(numbering.round)


def program_of(form: str, bits: int) -> Callable[..., dict[str, Collection]]:
    """A program that computes ids and drops them."""

    def program(rows: Collection) -> dict[str, Collection]:
        if form == "edits":
            ids = rows.with_row_id("id", bits=bits)
        else:
            ids = carrying_all(rows, bits, All if form == "all" else Changes)
        return {"ids": ids.where(col("id") < 0)}

    return program


def rows_of(kind: str, n: int) -> pl.DataFrame:
    """Distinct integers, or distinct strings of 40 characters, all at version 0."""
    numbers = pl.select(x=pl.int_range(n, dtype=pl.Int64))
    if kind == "strings":
        numbers = numbers.select(
            x=pl.format("the string of forty characters: {}", col("x").cast(pl.String).str.zfill(8))
        )
        assert numbers["x"].str.len_chars().unique().to_list() == [40]
    return numbers.with_columns(version=pl.lit(0, pl.Int64), diff=pl.lit(1, pl.Int64))


def main() -> None:
    """Fold once, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.interning_engine")
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("rows", choices=COUNTS)
    parser.add_argument("--bits", type=int, default=63, help="the width of ids (default: 63)")
    parser.add_argument("--count", type=int, help="how many rows (default: 10M integers, 1M strings)")
    options = parser.parse_args()
    n = options.count or COUNTS[options.rows]
    rows = rows_of(options.rows, n)
    compile_kernels()
    before_mib = peak_mib()

    clock = Clock()
    session = dd.Session(program_of(options.form, options.bits), {"rows": rows.drop("version", "diff").schema})
    session.fold({"rows": rows})
    figures = clock.figures("fold")

    state = sum(trace.memory() for trace in session._worker.state.traces)
    memory = {"peak_mib": peak_mib(), "before_mib": before_mib, "bytes_per_row": state / n}
    print(json.dumps({**figures, **memory, "rounds": session._worker.state.rounds}))


if __name__ == "__main__":
    main()
