"""Checks of this machine and this project: what a run needs, each with a hint what to do.

The only process started is ``java -version``, and the only files written are temporary ones in folders that have to
be writable. The user's program is imported, so its code runs.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ddcore.base.cache import LEVEL, OWN_FOLDER, cache_folder, distrust, kernel_folder, kernel_names, shipped_kernels
from ddcore.base.errors import DdError
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import Project
from ddcore.io.project.times import named, shown
from ddcore.io.storage.store import Location, is_folder
from ddcore.jobs.spark import class_archive, jars
from ddcore.jobs.spark.installed import EXTRA, lacking
from ddcore.jobs.spark.java import find_java
from ddcore.jobs.spark.settings import is_connect
from ddcore.traces import sorts

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.records import IntentRecord

_SETUP = "run: make setup, or: python -m ddcore.jobs.setup"
_CRON_PATH = "/usr/bin:/bin"
_SHOWN = 3  # names of leftovers
_PINNED = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}


@dataclass(frozen=True)
class Check:
    """One check and its result. ``state`` is ``fail`` if a run would fail; a ``note`` is for information."""

    name: str
    state: Literal["ok", "note", "fail"]
    message: str
    hint: str = ""


def checks(find: Callable[[], Project | None], *, deep: bool = False) -> list[Check]:
    """All checks, the machine's first. ``find`` gives the project, or None if there is none; it may raise DdError.

    ``deep``: every byte of the warehouse is read, and not only logs and footers. If the project's engine is inline, or
    there is no project and Spark is not installed, a failed check of what only Spark needs becomes a note.
    """
    results: list[Check] = []
    project, inline, is_installed = None, False, not lacking()
    try:
        project = find()
        inline = not is_installed if project is None else project.engine == "inline"
    except DdError as error:
        results.append(Check("project", "fail", error.message, error.hint))
    else:
        results += _no_project() if project is None else [*_project(project), *_warehouse(project, deep)]
    remote = project is not None and is_connect(project.spark_master)  # the server has Java and jars of its own
    groups = (_java, _spark, _jars, _archive) if is_installed and not remote else ()  # of no use before the libraries
    for_spark = [check for group in (_libraries, *groups, _cache) for check in group()]
    if inline:
        for_spark = [_not_needed(check) if check.state == "fail" else check for check in for_spark]
    return [*_python(), *for_spark, *_kernels(), *results, *_path()]


def _not_needed(check: Check) -> Check:
    return replace(check, state="note", message=f"{check.message}; the other engine, inline, does without")


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        yield Check("python", "ok", f"{version} at {sys.executable}")
    else:
        yield Check("python", "fail", f"{version}: 3.11 to 3.13 is needed", "make setup PYTHON=python3.12")


def _libraries() -> Iterator[Check]:
    for name, pinned in _PINNED.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "not installed"
        if version == pinned:
            yield Check(name, "ok", version)
        elif lacking():
            yield Check(name, "fail", f"{version}: the engine spark needs {pinned}", EXTRA)
        else:
            yield Check(name, "fail", f"{version}: {pinned} is needed", f"pip install {name}=={pinned}")


def _java() -> Iterator[Check]:
    try:
        java = find_java()
    except DdError as error:
        yield Check("java", "fail", error.message, error.hint)
    else:
        yield Check("java", "ok", f"{java.banner.splitlines()[0]} at {java.path}")


def _spark() -> Iterator[Check]:
    home = os.environ.get("SPARK_HOME")
    if home and not list(Path(home).glob(f"jars/spark-core_2.13-{_PINNED['pyspark']}.jar")):
        yield Check("spark", "fail", f"SPARK_HOME={home} is not Spark {_PINNED['pyspark']}", "unset SPARK_HOME")
    elif home:
        yield Check("spark", "ok", f"SPARK_HOME={home}")


def _jars() -> Iterator[Check]:
    if names := jars.missing():
        yield Check("delta jars", "fail", f"{len(names)} of {len(jars.JARS)} are not in {jars.folder()}", _SETUP)
    elif reason := distrust(jars.folder()):
        yield Check("delta jars", "fail", reason, OWN_FOLDER)
    else:
        yield Check("delta jars", "ok", f"{len(jars.JARS)} in {jars.folder()}")


def _archive() -> Iterator[Check]:
    if class_archive.current() is None:
        yield Check("class archive", "note", "none for this Java: Spark starts, but takes twice as long", _SETUP)
    else:
        yield Check("class archive", "ok", "present: Spark starts quickly")


def _cache() -> Iterator[Check]:
    if reason := distrust(cache_folder()):
        yield Check("cache", "fail", reason, OWN_FOLDER)
    else:
        yield _writable("cache", cache_folder(), OWN_FOLDER)


def _kernels() -> Iterator[Check]:
    from ddcore.compiling.kernel_cache import current_kernels

    names, current = kernel_names(), current_kernels()
    where = f"with the package, for {LEVEL}" if len(shipped_kernels()) >= len(names) else f"in {kernel_folder()}"
    message = f"{len(current)} of {len(names)} compiled and current, {where}"
    if len(current) == len(names):
        yield Check("kernels", "ok", message)
    else:
        yield Check("kernels", "note", f"{message}: the next run compiles the others, up to a minute", _SETUP)
        return  # and measures then
    used, measured = sorts.choice(), sorts.speeds()
    yield Check("sorting", "ok", f"{used}; radix {measured.radix:g} and numpy {measured.numpy:g} ns per update")


def _no_project() -> list[Check]:
    return [Check("project", "note", "none in this folder or above it", "create one: ddcore init DIR")]


def _project(project: Project) -> Iterator[Check]:
    yield Check("project", "ok", str(project.file))
    try:
        load_plan(project)
    except DdError as error:
        yield Check("program", "fail", error.message, error.hint)
    else:
        yield Check("program", "ok", project.program)


def _warehouse(project: Project, deep: bool) -> Iterator[Check]:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.storage.holder import is_alive

    warehouse = project.tables
    hint = "make it writable for this user, or name another: --warehouse DIR"
    yield _writable("warehouse", warehouse.root, hint)
    try:
        ledger = Ledger.load(warehouse)
        ledger.check_dims(project.dims)
        holder, dead = warehouse.holder(), warehouse.dead_holder()
    except DdError as error:
        yield Check("ledger", "fail", error.message, error.hint)
        return
    run, intent = ledger.current_run(), ledger.open_intent()
    folded = "nothing folded yet" if run is None else f"folded through {named(run.last, project.dims)}, run {run.run}"
    yield Check("ledger", "ok", folded)
    if intent is not None:
        yield _unfinished(intent, project.dims, is_running=holder is not None)
    if holder is None and dead is not None:
        message = f"free; {dead} was killed while it held it"
        yield Check("lock", "note", message, "the next command takes it: nothing needs to be removed")
    elif holder is None:
        yield Check("lock", "ok", "free")
    elif holder.host == socket.gethostname() and not is_alive(holder.pid):
        # The operating system frees the lock with the process, unless a child process still has the file open.
        message = f"{holder} has ended, but a process that it started still holds the lock"
        yield Check("lock", "fail", message, f"find and end that process: fuser -v {warehouse.root / '.lock'}")
    else:
        yield Check("lock", "note", f"held by {holder}", "wait until it has ended")
    yield from _files(ledger, deep)
    if holder is None:  # else some are files that it is about to commit
        yield from _unnamed_commits(ledger)
        yield from _leftovers(ledger)


def _unfinished(intent: IntentRecord, dims: tuple[str, ...], *, is_running: bool) -> Check:
    span = f"versions {intent.first}..{intent.last}" if len(dims) == 1 else f"to {shown(intent.last, dims)}"
    what = f"run {intent.run} ({span}, begun {intent.at:%Y-%m-%d %H:%M:%S} UTC)"
    if is_running:
        return Check("last run", "note", f"{what} is not finished yet", "wait until it has ended")
    return Check("last run", "note", f"{what} did not finish; show and diff leave it out", "to finish it: ddcore run")


def _files(ledger: Ledger, deep: bool) -> Iterator[Check]:
    """Whether the files of the live tables are whole."""
    from ddcore.io.upkeep import integrity

    found = integrity.inspect(ledger, deep=deep)
    for damage in found.damages:
        yield Check("files", "fail", damage.message, damage.hint)
    if found.tables and not found.damages:
        how = "every byte is as written" if deep else "sizes, footers and row counts are as written"
        counts = f"{found.tables:,} tables, {found.files:,} files, {found.rows:,} rows, {found.bytes:,} bytes"
        yield Check("files", "ok", f"{counts}: {how}{'' if deep else '; for every byte: --deep'}")


def _unnamed_commits(ledger: Ledger) -> Iterator[Check]:
    """Tables in which other readers see something else than ours."""
    from ddcore.io.upkeep import integrity

    if names := integrity.unnamed_commits(ledger):
        shown = ", ".join(names[:_SHOWN]) + (" and others" if len(names) > _SHOWN else "")
        have = "1 table has" if len(names) == 1 else f"{len(names)} tables have"
        message = f"{have} commits that the ledger does not name, of a killed command or another program: "
        hint = "ddcore ignores them, other readers do not; the next command that writes there finishes or reverts them"
        yield Check("commits", "note", message + shown, hint)


def _leftovers(ledger: Ledger) -> Iterator[Check]:
    """What takes space and is not needed."""
    from ddcore.io.upkeep import integrity

    try:
        for leftover in integrity.leftovers(ledger):
            names = ", ".join(leftover.examples[:_SHOWN]) + (" and others" if len(leftover.examples) > _SHOWN else "")
            message = f"{leftover.what}: {len(leftover.examples):,}, {leftover.bytes:,} bytes: {names}"
            yield Check("leftovers", "note", message, leftover.hint)
    except DdError as error:
        yield Check("leftovers", "note", f"not all were found: {error.message}", error.hint)


def _path() -> Iterator[Check]:
    scripts = Path(sys.executable).parent
    for name in ("dd", "ddcore"):
        path = shutil.which(name)
        if path and Path(path).parent == scripts:
            yield Check(f"{name} here", "ok", path)
        else:
            message = f"{path} is another program" if path else "not on PATH"
            yield Check(f"{name} here", "note", message, f"use {scripts / name}, or: source {scripts / 'activate'}")
    if path := shutil.which("dd", path=_CRON_PATH):
        yield Check("dd for cron", "note", f"{path}, which copies files", f"in crontabs use {scripts / 'ddcore'}")


def _writable(name: str, folder: Location, hint: str) -> Check:
    """Whether ``folder`` can be written to; where it does not exist, whether its nearest ancestor can. In an object
    store, whether it can be listed.
    """
    if not isinstance(folder, Path):
        try:
            return Check(name, "ok", str(folder) if is_folder(folder) else f"{folder}, where nothing is stored yet")
        except DdError as error:
            return Check(name, "fail", error.message, error.hint)
    nearest = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    try:
        if nearest == folder:
            os.listdir(folder)
        with tempfile.NamedTemporaryFile(dir=nearest, prefix=".doctor-"):
            pass
    except OSError as error:
        where = f" ({nearest})" if nearest != folder else ""
        return Check(name, "fail", f"{folder}: {error.strerror}{where}", hint)
    return Check(name, "ok", str(folder) if nearest == folder else f"{folder}, which does not exist yet")
