"""Branches of a warehouse: ``dd branch``. Making one holds the locks of the warehouse and of what it is made of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ddcore.base.errors import DdError, UsageError
from ddcore.io.ledger import recovery
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.frontiers import corners
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time
from ddcore.io.storage import branches, readers
from ddcore.io.storage.branches import MAIN, Note
from ddcore.io.storage.store import Location
from ddcore.io.storage.warehouse import Warehouse
from ddcore.io.upkeep import branching
from ddcore.jobs import predecessor
from ddcore.jobs.upstream import hold_for_branch


@dataclass(frozen=True)
class Branch:
    """A branch: where it is, how it was made, the ``run`` that it is at now, and the greatest times that are complete.

    ``problem``: why it cannot be read; empty where it can.
    """

    name: str
    path: str
    note: Note
    run: int
    folded: tuple[Time, ...]
    problem: str = ""


@dataclass(frozen=True)
class BranchReport:
    """What making or deleting a branch did, as in its JSON object: ``files`` with ``bytes`` are shared.

    ``stale_lock``: as in :class:`~ddcore.jobs.report.RunReport`.
    """

    name: str
    path: str
    source: str
    files: int = 0
    bytes: int = 0
    deleted: bool = False
    took: float = 0.0
    stale_lock: dict[str, Any] | None = None


def make(project: Project, name: str) -> BranchReport:
    """Make a branch of the warehouse, or of the branch that the project works on: it has the same versions, outputs and
    history, and goes its own way from there.

    Cost: a link for each file, whatever its size; in an object store a copy of each object, by the store. Raises
    UsageError (a name that is taken; an unfinished run), LockHeld and StorageError.
    """
    start, source = time.perf_counter(), project.tables
    _check_name(name, "choose another name")
    source.check()
    with ExitStack() as locks:
        if project.branch:
            locks.enter_context(Warehouse(project.home).lock("ddcore branch"))
        lock, ledger = locks.enter_context(predecessor.writing(source, "ddcore branch", project.tuning))
        finished = recovery.finish(ledger)  # else the branch would take the commit of a killed ingest back
        stale_lock = predecessor.tell(lock, ledger, finished=finished)
        ledger.check_dims(project.dims)
        _check_finished(ledger)
        if name in branches.names(project.home):
            raise UsageError(
                f"there is a branch {name} already", f"choose another name, or first: ddcore branch {name} --delete"
            )
        origin, address = project.branch or MAIN, branches.address_of(project.home, name)
        reader = hold_for_branch(project, address, name)
        shared = branching.make(ledger, project.home, origin, name)
        if reader is not None and project.upstream is not None:
            readers.call(address, project.upstream.warehouse, reader)
    took = round(time.perf_counter() - start, 3)
    return BranchReport(name, str(address), origin, shared.files, shared.bytes, took=took, stale_lock=stale_lock)


def delete(project: Project, name: str) -> BranchReport:
    """Delete a branch; nothing of the warehouse and of other branches changes. Raises UsageError where it is not there,
    LockHeld where a command is at work on it or on the warehouse.
    """
    start, home = time.perf_counter(), Warehouse(project.home)
    _check_name(name, "ddcore branch lists the branches")
    address = branches.address_of(home.root, name)
    with home.lock("ddcore branch"):
        branching.remove_left(home.root)
        branches.require(home.root, name, "branch")
        reader = readers.name_of(address)
        with Warehouse(address).lock("ddcore branch"):
            branching.remove(address)
        if reader is not None and project.upstream is not None:
            readers.forget(project.upstream.warehouse, reader)
        branching.remove_left(home.root)  # in an object store, the object of the lock
    return BranchReport(name, str(address), MAIN, deleted=True, took=round(time.perf_counter() - start, 3))


def listed(project: Project) -> Iterator[Branch]:
    """The branches of the warehouse, by name. Takes no lock. Reads of each a note, and the end of its ledger."""
    for name in branches.names(project.home):
        address = branches.address_of(project.home, name)
        try:
            yield _branch(name, address, branches.note_of(project.home, name))
        except DdError as error:
            yield Branch(name, str(address), Note("", "", 0, []), 0, (), error.message)


def _branch(name: str, address: Location, note: Note) -> Branch:
    ledger = Ledger.load(Warehouse(address))
    run, upper = ledger.current_run(), ledger.upper()
    return Branch(
        name, str(address), note, 0 if run is None else run.run, () if upper is None else tuple(corners(upper))
    )


def _check_name(name: str, hint: str) -> None:
    branches.check_name(name, "branch")
    if name == MAIN:
        raise UsageError(f"branch: {MAIN} is the warehouse itself", hint)


def _check_finished(ledger: Ledger) -> None:
    """Raise UsageError while a run is unfinished: two would finish it, each in its own way."""
    if (intent := ledger.open_intent()) is not None:
        raise UsageError(f"run {intent.run} is not finished", "finish it with: ddcore run")
