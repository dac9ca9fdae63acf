"""What this machine and this project lack for a run: a list of checks, each with the line that mends it.

Nothing is started but ``java -version``, nothing is changed but for a file that comes and goes in each folder that
has to be writable. The user's program is imported: it is code.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from ddcore.cache import cache_folder, kernel_folder
from ddcore.errors import DdError
from ddcore.io.program import load_program
from ddcore.io.project import Project
from ddcore.jobs import cds, jars
from ddcore.jobs.java import find_java

__all__ = ["Check", "checks"]

_SETUP = "run: make setup, or: python -m ddcore.jobs.setup"
_CRON_PATH = "/usr/bin:/bin"
_PINNED = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``state`` is ``fail`` where a run would fail; a ``note`` is good to know."""

    name: str
    state: Literal["ok", "note", "fail"]
    said: str
    mend: str = ""


def checks(project: Callable[[], Project | None]) -> list[Check]:
    """Everything, machine first. ``project`` finds the project; it may raise, and gives None where there is none."""
    found = [
        check for look in (_python, _libraries, _java, _spark, _jars, _archive, _cache, _kernels) for check in look()
    ]
    try:
        here = project()
    except DdError as error:
        found.append(Check("project", "fail", error.message, error.hint))
    else:
        found += _no_project() if here is None else [*_project(here), *_warehouse(here)]
    return [*found, *_path()]


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        yield Check("python", "ok", f"{version} at {sys.executable}")
    else:
        yield Check("python", "fail", f"{version}: 3.11 to 3.13 is needed", "make setup PYTHON=python3.12")


def _libraries() -> Iterator[Check]:
    for name, wanted in _PINNED.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "not installed"
        if version == wanted:
            yield Check(name, "ok", version)
        else:
            yield Check(name, "fail", f"{version}: {wanted} is needed", f"pip install {name}=={wanted}")


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
    if lacking := jars.missing():
        said = f"{len(lacking)} of {len(jars.JARS)} are not in {jars.folder()}"
        yield Check("delta jars", "fail", said, _SETUP)
    else:
        yield Check("delta jars", "ok", f"{len(jars.JARS)} in {jars.folder()}")


def _archive() -> Iterator[Check]:
    if cds.current() is None:
        yield Check("class archive", "note", "none for this Java: Spark starts, but takes twice as long", _SETUP)
    else:
        yield Check("class archive", "ok", "there: Spark starts quickly")


def _cache() -> Iterator[Check]:
    yield _writable("cache", cache_folder(), "set DDCORE_CACHE to a folder of yours")


def _kernels() -> Iterator[Check]:
    folder = kernel_folder()
    if any(folder.rglob("*.nbi")):
        yield Check("kernels", "ok", f"compiled, in {folder}")
    else:
        yield Check("kernels", "note", f"none compiled in {folder}: the first run takes a minute more", _SETUP)


def _no_project() -> list[Check]:
    return [Check("project", "note", "none in this folder or above it", "make one with: ddcore init DIR")]


def _project(project: Project) -> Iterator[Check]:
    yield Check("project", "ok", str(project.file))
    try:
        load_program(project)
    except DdError as error:
        yield Check("program", "fail", error.message, error.hint)
    else:
        yield Check("program", "ok", project.program)


def _warehouse(project: Project) -> Iterator[Check]:
    from ddcore.io.ledger import Ledger
    from ddcore.io.warehouse import Warehouse

    place = Warehouse(project.warehouse)
    mend = "make it writable for this user, or name another: --warehouse DIR"
    writable = _writable("warehouse", place.root, mend)
    yield writable
    try:
        ledger = Ledger.load(place)
        holder = place.holder()
    except DdError as error:
        yield Check("ledger", "fail", error.message, error.hint)
        return
    run, intent = ledger.current_run(), ledger.open_intent()
    folded = "nothing folded yet" if run is None else f"folded through version {run.last}, run {run.run}"
    yield Check("ledger", "ok", folded)
    if intent is not None:
        yield Check("last run", "note", f"run {intent.run} did not finish; nothing of it is visible", "ddcore run")
    if holder is None:
        yield Check("lock", "ok", "free")
    elif holder.host == socket.gethostname() and not _alive(holder.pid):
        # The operating system frees the lock with the process, unless a child of it lives on with the file open.
        said = f"{holder} is gone, but a process it started still holds the lock"
        yield Check("lock", "fail", said, f"find and end it: fuser -v {place.root / '.lock'}")
    else:
        yield Check("lock", "note", f"held by {holder}", "wait until it is done")


def _path() -> Iterator[Check]:
    ours = Path(sys.executable).parent
    for name in ("dd", "ddcore"):
        here = shutil.which(name)
        if here and Path(here).parent == ours:
            yield Check(f"{name} here", "ok", here)
        else:
            said = f"{here} is another program" if here else "not on PATH"
            yield Check(f"{name} here", "note", said, f"say {ours / name}, or: source {ours / 'activate'}")
    if there := shutil.which("dd", path=_CRON_PATH):
        yield Check("dd for cron", "note", f"{there}, which copies files", f"in crontabs say {ours / 'ddcore'}")


def _writable(name: str, folder: Path, mend: str) -> Check:
    """Whether ``folder`` can be written to; of one that is not there yet, the nearest that is above it."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    try:
        if there == folder:
            os.listdir(folder)
        with tempfile.NamedTemporaryFile(dir=there, prefix=".doctor-"):
            pass
    except OSError as error:
        return Check(
            name,
            "fail",
            f"{folder}: {error.strerror} ({there})" if there != folder else f"{folder}: {error.strerror}",
            mend,
        )
    return Check(name, "ok", str(folder) if there == folder else f"{folder}, which is to be made")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
