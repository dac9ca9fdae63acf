"""A program beside an earlier one: what becomes of each output and of each stored arrangement, and why.

Reads the ledger and Delta logs, and no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.base.lattice import le
from ddcore.io.delta import tables
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import RunRecord
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import FILE_NAME, Project
from ddcore.io.project.times import named
from ddcore.planning.rebuilding import definitions
from ddcore.program.data_tests import is_test
from ddcore.text.wording import shown

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.planning.plan import Plan

LAST = "last"
_ENDINGS = (".py", ".sql", ".json")


@dataclass(frozen=True)
class Former:
    """What is known of the earlier program, called ``name``. ``columns``: names and types of each output's columns;
    ``definitions`` and ``arrangements`` are fingerprints. ``run``: the run that folded it, if one has.
    """

    name: str
    fingerprint: str
    definitions: Mapping[str, str]
    columns: Mapping[str, Mapping[str, str]]
    arrangements: frozenset[str]
    run: RunRecord | None = None


@dataclass(frozen=True)
class OutputChange:
    """What becomes of an output: ``unchanged``, ``difference`` (computed in another way), ``columns`` (it has other
    columns), ``new`` or ``dropped``. ``added``, ``removed`` and ``retyped`` columns, with their types.
    """

    output: str
    change: str
    added: Mapping[str, str] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)
    retyped: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """The fields of a line of JSON: the output, what becomes of it, and its columns that differ."""
        retyped = {name: {"from": old, "to": new} for name, (old, new) in self.retyped.items()}
        columns = {"added": dict(self.added), "removed": dict(self.removed), "retyped": retyped}
        return {"output": self.output, "change": self.change, "columns": columns}


@dataclass(frozen=True)
class ArrangementChange:
    """What becomes of an arrangement: ``kept``, ``built`` or ``dropped``. ``label`` and ``of`` as in ``dd plan``; empty
    for one that only the earlier program has. ``why``: a clause.
    """

    table: str
    change: str
    why: str
    label: str = ""
    of: str = ""
    key: str = ""


@dataclass(frozen=True)
class Comparison:
    """A program beside an earlier one."""

    former: Former
    fingerprint: str
    outputs: tuple[OutputChange, ...]
    arrangements: tuple[ArrangementChange, ...]

    @property
    def changed(self) -> bool:
        """Whether any output changes, or is new or dropped."""
        return any(one.change != "unchanged" for one in self.outputs)

    def of_change(self, change: str) -> list[ArrangementChange]:
        """The arrangements of which this becomes."""
        return [one for one in self.arrangements if one.change == change]

    def fields(self) -> dict[str, Any]:
        """The fields of the JSON object of ``dd plan --against``: both programs, outputs and arrangements."""
        run = self.former.run
        return {
            "against": {
                "program": self.former.name,
                "fingerprint": self.former.fingerprint,
                "run": None if run is None else run.run,
            },
            "fingerprint": self.fingerprint,
            "changed": self.changed,
            "outputs": [one.fields() for one in self.outputs],
            "arrangements": [vars(one) for one in self.arrangements],
        }


def former_of(project: Project, ledger: Ledger | None, text: str) -> Former:
    """The earlier program that a text names: ``last``, a run by its number, a version by its name, or the path of a
    program or of a project. UsageError for none of these; ProgramError.
    """
    path = Path(text).expanduser()
    is_function = text.rpartition(":")[0].endswith(".py")
    if not text.isdecimal() and (path.suffix in _ENDINGS or is_function or path.exists()):
        return _of_path(project, text, path)
    if ledger is None or (current := ledger.current_run()) is None:
        raise UsageError(
            f"--against {text}: nothing is folded yet",
            "fold it first: ddcore run; or name the file of another program: --against FILE",
        )
    if text == LAST:
        return of_run(ledger, current, project.dims)
    if text.isdecimal():
        run = ledger.run(int(text))
        if run is None:
            raise UsageError(
                f"--against {text}: there is no finished run {text}; the last is {current.run}",
                "runs are listed by: ddcore log",
            )
        return of_run(ledger, run, project.dims)
    time = ledger.version_names(project.dims).time(text, "--against", nearest=False)
    for run in ledger.runs_backwards(current.run):
        if le(run.first, time) and le(time, run.last):
            return of_run(ledger, run, project.dims)
    raise UsageError(f"--against {text}: no run has folded {named(time, project.dims)}", "see: ddcore log")


def of_run(ledger: Ledger, run: RunRecord, dims: tuple[str, ...]) -> Former:
    """The program of a finished run."""
    columns = {}
    for output in run.definitions:
        state = run.tables.get(f"outputs/{output}")
        if state is not None and not is_test(output):
            stored = tables.stored_columns(ledger.warehouse.output(output), state, ledger.writer)
            columns[output] = {name: kind for name, kind in stored if name not in (*dims, "diff")}
    return Former(f"run {run.run}", run.fingerprint, run.definitions, columns, frozenset(run.arrangements), run)


def _of_path(project: Project, text: str, path: Path) -> Former:
    """The program of a file, over the inputs of this project; or of another project's folder."""
    if path.is_dir() or path.name == FILE_NAME:
        other = find_project(path if path.is_dir() else path.parent, {})
    else:
        file, colon, function = text.rpartition(":")
        file, function = (file, function) if colon else (text, project.program_function)
        program = str(Path(file).expanduser().absolute())
        other = replace(project, program=f"{program}:{function}" if program.endswith(".py") else program, outputs={})
    plan = load_plan(other)
    stored = frozenset(a.fingerprint for a in plan.arrangements if not a.transient)
    columns = {name: _columns(schema) for name, schema in plan.outputs.items() if not is_test(name)}
    return Former(shown(path), plan.fingerprint, definitions(plan), columns, stored)


def compared(plan: Plan, former: Former) -> Comparison:
    """A plan beside an earlier program. O(plan)."""
    return Comparison(former, plan.fingerprint, tuple(_outputs(plan, former)), tuple(_arrangements(plan, former)))


def _columns(schema: Schema) -> dict[str, str]:
    return {name: str(kind) for name, kind in schema.items()}


def _outputs(plan: Plan, former: Former) -> Iterator[OutputChange]:
    now = definitions(plan)
    for output in sorted(name for name in {**former.definitions, **now} if not is_test(name)):
        before = former.columns.get(output, {})
        after = _columns(plan.outputs[output]) if output in now else {}
        if output not in now:
            yield OutputChange(output, "dropped")
        elif output not in former.definitions:
            yield OutputChange(output, "new")
        elif former.definitions[output] == now[output]:
            yield OutputChange(output, "unchanged")
        else:
            added = {name: kind for name, kind in after.items() if name not in before}
            removed = {name: kind for name, kind in before.items() if name not in after}
            retyped = {name: (before[name], kind) for name, kind in after.items() if before.get(name, kind) != kind}
            is_other = list(before.items()) != list(after.items())
            yield OutputChange(output, "columns" if is_other else "difference", added, removed, retyped)


def _arrangements(plan: Plan, former: Former) -> Iterator[ArrangementChange]:
    from ddcore.drawing.diagram import diagram

    drawing = diagram(plan)
    labels = {index.table.removeprefix("state/"): index for index in drawing.indexes}
    own = [a for a in plan.arrangements if not (a.transient or plan.is_inner(a))]
    built = [a for a in own if a.fingerprint not in former.arrangements]
    upstream = {a.index: _upstream(plan, a.node) for a in built}
    for one in own:
        index, change, why = labels.get(one.fingerprint), "kept", ""
        if one in built:
            first = next((a for a in built if a.node != one.node and a.node in upstream[one.index]), None)
            cause = None if first is None else labels.get(first.fingerprint)
            change, why = "built", "other rows, columns or key" if cause is None else f"computed from {cause.label}"
        named = () if index is None else (index.label, f"{index.box.number} {index.box.title}", index.key_text)
        yield ArrangementChange(f"state/{one.fingerprint}", change, why, *named)
    for fingerprint in sorted(former.arrangements - {a.fingerprint for a in plan.arrangements}):
        yield ArrangementChange(f"state/{fingerprint}", "dropped", "nothing reads it")


def _upstream(plan: Plan, node: int) -> set[int]:
    """The nodes from which one is computed, without what loops feed back."""
    found, waiting = set[int](), list(plan.nodes[node].inputs)
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += plan.nodes[number].inputs
    return found
