"""Which stored arrangements a stream of refreshes looks up: ``python -m bench.looked_up PROJECT LOGS...``.

Each of LOGS is a folder of files ``INPUT.parquet``, the changes of one refresh. They are folded in this process, and
each time that an operator takes an arrangement to look rows up is counted. Printed: by what reads them, the number of
arrangements that were looked up and of those that were not, and the names of the latter.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from bench.measure import prompt_to_prompt
from bench.project import DDCORE
from ddcore.engine.state import FoldState
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan
from ddcore.jobs import replay
from ddcore.operators.arrangement import Arrangement
from ddcore.planning.plan import Plan


def readers(plan: Plan) -> dict[int, set[str]]:
    """What reads each arrangement: operator and port, or the operator whose result it is."""
    uses: dict[int, set[str]] = defaultdict(set)
    for block in plan.blocks:
        for number, port in enumerate(block.ports):
            uses[port].add(f"{block.op}, input {number + 1} of {len(block.ports)}")
        if block.output is not None:
            uses[block.output].add(f"{block.op}, its result")
    return uses


def main(folder: Path, logs: list[Path]) -> None:
    """Fold the refreshes, and print what was looked up."""
    project = find_project(folder)
    plan, taken, trace = load_plan(project), Counter[int](), FoldState.trace

    def counted(state: FoldState, arrangement: Arrangement) -> Any:
        taken[arrangement.index] += 1
        return trace(state, arrangement)

    FoldState.trace = counted  # type: ignore[method-assign, assignment]
    for log in logs:
        for file in sorted(log.glob("*.parquet")):
            prompt_to_prompt([DDCORE, "ingest", file.stem, file, "--engine", "inline"], folder)
        replay.run(project, engine="inline")
    table: dict[str, Counter[bool]] = defaultdict(Counter)
    uses = readers(plan)
    for arrangement in (entry for entry in plan.arrangements if not entry.transient):
        table["; ".join(sorted(uses[arrangement.index])) or "nothing"][arrangement.index in taken] += 1
    for use, counts in sorted(table.items(), key=lambda item: -item[1].total()):
        print(f"{counts[True]:4} looked up, {counts[False]:4} not: {use}")
    for arrangement in plan.arrangements:
        if not arrangement.transient and arrangement.index not in taken:
            node = plan.nodes[arrangement.node]
            print(
                f"not: {node.operator.name} ({node.source_line}) by {', '.join(arrangement.key)}: "
                f"{uses[arrangement.index]}"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(item) for item in sys.argv[2:]])
