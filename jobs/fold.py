"""What an engine is given: one window of times to be folded.

Its result is :class:`ddcore.io.state.fold_result.FoldResult`.

Must not import the engine: the driver of a fold on Spark loads this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ddcore.base.instants import Moved
from ddcore.base.lattice import Frontier
from ddcore.base.record import record
from ddcore.io.delta.table_files import TableState
from ddcore.io.ledger.workloads import Workload
from ddcore.io.project.frontiers import Window
from ddcore.io.project.project import Project

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.io.state.fold_result import FoldResult, Stored
    from ddcore.operators.block import Block
    from ddcore.planning.plan import Plan
    from ddcore.planning.rebuilding import Rebuilding

Listener = Callable[..., None]


@record
class Fold:
    """One window of times to be folded, and all that its workers need.

    ``begin``: the time at which the rows that the program spells out are there, None where an earlier run has folded
    them. ``instants``: the updates of the instants of versions, if the program uses them. ``rebuilding``: only this
    part of the plan is folded, and ``stored`` has what the rest of it holds already. ``loads``: what workers on Spark
    took in earlier runs of the program.
    """

    plan: Plan
    stored: Stored
    window: Window
    inputs: Mapping[str, TableState | None]  # each input's table
    settings: Project
    parallelism: int | None
    rows: int  # an upper bound of the rows in the window
    begin: tuple[int, ...] | None
    rebuilding: Rebuilding | None = None
    instants: tuple[Moved, ...] = ()
    loads: tuple[Workload, ...] = ()

    @property
    def inputs_read(self) -> Mapping[str, Schema]:
        """The inputs whose updates are folded."""
        part = self.rebuilding
        return {name: schema for name, schema in self.plan.inputs.items() if part is None or name in part.inputs}

    @property
    def upper(self) -> Frontier | None:
        """The frontier of the times that the run does not complete, for a worker.

        None with one dimension: no join of complete versions is beyond it.
        """
        return self.window.upper if len(self.plan.dims) > 1 else None


Engine = Callable[[Fold, "Listener | None"], "tuple[FoldResult, int]"]
"""Folds a window; returns the files it wrote, and the parallelism. Raises the FoldError family and DdError."""


def doing(plan: Plan, block: Block | None, rounds: int) -> str:
    """What a fold works on, in words: ``join (program.py:11), round 9``."""
    if block is None:
        return ""
    if block.op == "output":
        what = f"output {plan.arrangements[block.owned[0]].output}"
    else:
        node = plan.nodes[block.node]
        what = {"variable": "loop", "input": "input"}.get(node.operator.name, node.operator.name)
        what += f" ({node.source_line})" if node.source_line else ""
    return what + (f", round {rounds}" if block.loops else "")
