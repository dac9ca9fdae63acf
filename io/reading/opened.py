"""``dd.open(project)``: inputs, outputs and history of a project, for reading. Takes no lock, writes nothing.

Every access asks the ledger, so it sees the newest finished run; a log that was taken stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, tee
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ddcore.base.errors import DdError, UsageError
from ddcore.io.ledger.history import entries, history_table, spelled
from ddcore.io.project.finding import IN_PYTHON
from ddcore.io.project.frontiers import corners
from ddcore.io.reading.opened_log import Log
from ddcore.io.reading.opening import project_at
from ddcore.io.reading.published import finished_run, output_names
from ddcore.io.storage.store import is_folder
from ddcore.text.cells import count
from ddcore.text.listing import aligned
from ddcore.text.wording import brief, listed, meant

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.version_names import VersionNames
    from ddcore.io.project.project import Project
    from ddcore.planning.plan import Plan

_ENTRIES = 20  # of the history that a notebook shows


def open(
    project: str | PathLike[str] | None = None, *, warehouse: str | None = None, branch: str | None = None
) -> OpenedProject:
    """A project for reading: its inputs, outputs, plan and history.

    ``project`` is a folder or a ``dd.toml``; without it, the project is found as the commands find it. ``warehouse``
    is one to read instead of the project's own, ``branch`` one of its branches. Takes no lock and starts no JVM. Raises
    UsageError where there is no such project or branch.
    """
    if project is not None and not isinstance(project, str | PathLike):
        raise UsageError(
            f"dd.open: {brief(project)} is no project", 'name its folder: dd.open("demo"); or none: dd.open()'
        )
    if warehouse is not None and not isinstance(warehouse, str | PathLike):
        raise UsageError(f"dd.open: warehouse is {brief(warehouse)}", 'name a folder: dd.open(warehouse="warehouse")')
    if branch is not None and not isinstance(branch, str):
        raise UsageError(f"dd.open: branch is {brief(branch)}", 'name a branch: dd.open(branch="try")')
    if isinstance(project, str) and not project.strip():
        raise UsageError("dd.open: the name of the project is empty", 'name its folder: dd.open("demo")')
    folder = None if project is None else Path(project)
    flags = {"warehouse": None if warehouse is None else str(warehouse), "branch": branch}
    return OpenedProject(project_at(folder, flags, IN_PYTHON))


class OpenedProject:
    """A project as :func:`ddcore.open` returns it: ``project["name"]`` is the log of an output or input."""

    def __init__(self, settings: Project) -> None:
        self.settings = settings

    @property
    def inputs(self) -> Logs:
        """The logs of the inputs, by name."""
        return Logs(self.settings, "input")

    @property
    def outputs(self) -> Logs:
        """The logs of the outputs that the last finished run has, by name."""
        return Logs(self.settings, "output")

    def __getitem__(self, name: str) -> Log:
        found = [logs for logs in (self.outputs, self.inputs) if name in logs]
        if len(found) == 1:
            return found[0][name]
        if found:
            raise UsageError(f"{name} is an input and an output", f'say which: project.inputs["{name}"]')
        names = [*self.outputs, *self.inputs]
        raise UsageError(
            f"there is no input or output {brief(name)}; there are: {listed(names)}",
            meant(name, names) or self._without_outputs(),
        )

    def _without_outputs(self) -> str:
        """Where outputs come from, for a name that is none."""
        if self.outputs._ledger() is None:
            where = f"outputs are in the warehouse, and there is none in {self.settings.warehouse}"
            return f"{where}: check the path; a new one begins with: ddcore ingest INPUT SOURCE"
        return "outputs are there after a run: ddcore run"

    def plan(self) -> Plan:
        """The dataflow of the program. Imports and calls the program, as ``dd plan`` does, and raises as it does."""
        from ddcore.io.project.program import load_plan

        return load_plan(self.settings)

    def log(self) -> History:
        """The record of ingests and runs, newest first."""
        from ddcore.io.reading.folded import ledger_of

        ledger = ledger_of(self.settings)
        return History(entries(ledger), ledger.version_names(self.settings.dims).read())

    def __repr__(self) -> str:
        inputs, outputs = listed(self.inputs), listed(self.outputs)
        return f"project {self.settings.root.name}: {self._folded()}; inputs: {inputs}; outputs: {outputs}"

    def _folded(self) -> str:
        """What is folded and what waits, in words. An error here is a part of the words."""
        from ddcore.io.reading.folded import ledger_of

        try:
            ledger = ledger_of(self.settings)
            names, upper = ledger.version_names(self.settings.dims), ledger.upper()
            tops = [] if upper is None else [names.shown(top) for top in corners(upper)]
            waiting = len(ledger.waiting())
        except DdError as error:
            return error.message
        words = f"folded up to {' and '.join(tops)}" if tops else "nothing is folded"
        several = "1 ingest waits" if waiting == 1 else f"{count(waiting)} ingests wait"
        return f"{words}, {several} for a run" if waiting else words

    def _repr_html_(self) -> str:
        from ddcore.text.notebook import fragment, heading

        about = f"{self._folded()}; {self.settings.program}"
        return fragment(heading(self.settings.root.name, about), self.inputs._table(), self.outputs._table())

    def _ipython_key_completions_(self) -> list[str]:
        return [*self.outputs, *self.inputs]


class Logs(Mapping[str, Log]):
    """The inputs or the outputs of a project, by name. An unknown name is a UsageError."""

    def __init__(self, settings: Project, kind: Literal["input", "output"]) -> None:
        self._settings, self._kind = settings, kind

    def __getitem__(self, name: str) -> Log:
        from ddcore.io.reading.folded import input_log, ledger_of, output_log

        if not isinstance(name, str):
            raise UsageError(f"{brief(name)} is no name of an {self._kind}", f"there are: {listed(self)}")
        settings = self._settings
        if self._kind == "input":
            settings.input_schema(name)
        ledger = ledger_of(settings)
        log = (input_log if self._kind == "input" else output_log)(settings, name, ledger)
        log.names.read()
        output = settings.outputs.get(name)
        key = settings.keys.get(name, ()) if self._kind == "input" else () if output is None else output.key
        return Log(log, self._kind, tuple(key), lambda: finished_run(ledger))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def get(self, name: str, default: Any = None) -> Any:
        """The log of this name, or ``default`` where there is none."""
        if name in self:
            return self[name]
        return default

    def _names(self) -> list[str]:
        if self._kind == "input":
            return list(self._settings.inputs)
        ledger = self._ledger()
        run = None if ledger is None else ledger.current_run()
        return [] if run is None else output_names(run)

    def _ledger(self) -> Ledger | None:
        """The ledger; None where there is no warehouse yet."""
        from ddcore.io.reading.folded import ledger_of

        return ledger_of(self._settings) if is_folder(self._settings.warehouse) else None

    def _ipython_key_completions_(self) -> list[str]:
        return self._names()

    def __repr__(self) -> str:
        return "\n".join(self._lines()) or f"no {self._kind} yet"

    def _lines(self) -> Iterator[str]:
        for name, columns in self._rows():
            yield f"{name} ({columns})"

    def _rows(self) -> Iterator[tuple[str, str]]:
        has_ledger = self._ledger() is not None
        for name in self._names():
            schema = self[name].schema if has_ledger else self._settings.inputs[name]
            yield name, ", ".join(f"{column} {kind}" for column, kind in schema.items())

    def _table(self) -> Any:
        from ddcore.text.markup import table
        from ddcore.text.notebook import note

        rows = list(self._rows())
        return table([self._kind, "columns"], rows, label=f"{self._kind}s") if rows else note(f"no {self._kind} yet")

    def _repr_html_(self) -> str:
        from ddcore.text.notebook import fragment

        return fragment(self._table())


class History(Sequence[dict[str, Any]]):
    """Ingests, runs and undos, newest first. Each is a dict, as a line of ``dd log --json``.

    The ledger is read from its end, as far as the entries are asked for; ``len``, and places from the end, read all.
    """

    def __init__(self, entries: Iterator[dict[str, Any]], names: VersionNames) -> None:
        self._entries, self._names = entries, names  # the entries are never advanced, but by copies

    def _first(self, many: int | None) -> list[dict[str, Any]]:
        """The newest entries: so many, or all for None; fewer where there are no more."""
        self._entries, entries = tee(self._entries)
        return list(islice(entries, many))

    def __len__(self) -> int:
        return len(self._first(None))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._entries, entries = tee(self._entries)
        return (spelled(record, self._names) for record in entries)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> History: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | History:
        if isinstance(index, slice):
            ends = [end for end in (index.start, index.stop, index.step) if end is not None]
            many = index.stop if index.stop is not None and min(ends) >= 0 else None
            return History(iter(self._first(many)[index]), self._names)
        return spelled(self._first(index + 1 if index >= 0 else None)[index], self._names)

    def __repr__(self) -> str:
        records = self._first(_ENTRIES + 1)
        if not records:
            return "no ingest and no run yet"
        rows, right = history_table(records[:_ENTRIES], self._names)
        return "\n".join([*aligned(rows, right, header=True), *(["... and more"] if len(records) > _ENTRIES else [])])

    def _repr_html_(self) -> str:
        from ddcore.text.markup import table
        from ddcore.text.notebook import fragment, note

        records = self._first(_ENTRIES + 1)
        if not records:
            return fragment(note("No ingest and no run yet."))
        (head, *rows), right = history_table(records[:_ENTRIES], self._names)
        more = [note("Earlier ones are not shown.")] if len(records) > _ENTRIES else []
        return fragment(table(head, rows, right=right, label="ingests and runs"), *more)
