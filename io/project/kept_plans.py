"""Plans in the cache folder: a program that has not changed is not planned again.

An entry is found by everything that decides a plan beside the program's text: the settings of the project, the
statistics of its inputs, the versions of Python and of the libraries, the text of this package, the environment, and
the program's path. It names the files of the program (see :mod:`ddcore.io.project.program_sources`), which must be as
they were. It has the plan's fingerprint, so a run with nothing new needs neither the plan nor Polars. And it has the
plan, as a pickle, with functions of this package and of libraries by name. A plan with a function of the user is not
kept: it is built where it is needed.

A pickle is code, so it is loaded only from a folder that nobody else can change. An entry is complete or absent: it is
renamed into place, with a digest. A damaged entry, or a folder that cannot be used, means that the program is planned.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ddcore.base import version
from ddcore.base.cache import cache_folder, distrust, note_use, read_sealed, version_of, write_sealed
from ddcore.base.record import record
from ddcore.io.project.program import load, plan_of
from ddcore.io.project.program_sources import Sources, self_contained
from ddcore.io.project.project import Project
from ddcore.io.project.statistics import kept_statistics
from ddcore.program.data_tests import DataTest, Planned

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.planning.plan import Plan

_FORMAT = 1
_LIBRARIES = ("polars", "numpy", "pyarrow", "sqlglot")
# Variables of ours that change no plan; one that is not listed here counts.
_WITHOUT_EFFECT = {
    "DDCORE_CACHE", "DDCORE_DEBUG", "DDCORE_ENGINE", "DDCORE_FAILPOINT", "DDCORE_FAILPOINT_LOG", "DDCORE_LOCK_SECONDS",
    "DDCORE_MASTER", "DDCORE_MEMORY", "DDCORE_PARALLELISM", "DDCORE_PROJECT", "DDCORE_SORT", "DDCORE_VERIFY_EVERY",
    "DDCORE_WAREHOUSE", "DDCORE_WORKER_ROWS",
}  # fmt: skip
_TRUSTED = {"builtins", "collections", "copyreg", "datetime", "ddcore", "decimal", "functools", "numpy", "polars"}


@record
class PlannedProgram:
    """The plan of a program, and its data tests."""

    plan: Plan
    tests: tuple[DataTest, ...]


@record
class KeptPlan:
    """What is known of a program that has not changed since it was planned, without planning it.

    ``uses_now``: whether the instants of versions count. ``content``: the pickled plan; empty where it cannot be kept.
    """

    fingerprint: str
    inputs: Mapping[str, Schema]
    dims: tuple[str, ...]
    uses_now: bool
    content: bytes

    def program(self) -> PlannedProgram | None:
        """The plan itself; None where it was not kept, or cannot be loaded. Imports Polars."""
        if not self.content:
            return None
        try:
            plan, tests = _Unpickler(io.BytesIO(self.content)).load()
        except Exception:  # whatever it is, the program can be planned
            return None
        return PlannedProgram(plan, tests)


def kept_plan(project: Project) -> KeptPlan | None:
    """What is kept of the project's program as it is now; None where it must be planned. Some 10 ms."""
    try:
        return _read(project, _file(project))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def planned(project: Project, kept: KeptPlan | None) -> PlannedProgram:
    """The plan of the project's program: the one that is kept, else one that is built. Without an entry, what is built
    is kept, if nothing but its text and the settings decided it. Raises as :func:`ddcore.io.project.program.load_plan`.
    """
    program = None if kept is None else kept.program()
    return program or _built(project, keep=kept is None)


def _built(project: Project, *, keep: bool) -> PlannedProgram:
    files = project.program_files
    sources = self_contained(files) if keep and all(file.is_file() for file in files) else None
    is_stale = sources is not None and sources.any_imported()
    loaded = load(project)
    program = PlannedProgram(plan_of(loaded, project), loaded.tests)
    if sources is not None and not is_stale and sources.were_imported() and sources.are_current():
        with suppress(OSError):
            _write(_file(project), sources, program)
    return program


# -- the key -----------------------------------------------------------------------------------------------------------


def _file(project: Project) -> Path:
    """The entry's file. Raises OSError where the sources of this package cannot be read."""
    state = hashlib.blake2b(digest_size=16)
    for part in _parts(project):
        state.update(f"{len(part)} {part}".encode(errors="surrogatepass"))
    return cache_folder() / "plans" / state.hexdigest()


def _parts(project: Project) -> Iterator[str]:
    """All that decides a plan, beside the texts of the program's files."""
    yield repr((_FORMAT, sys.version, os.uname().machine, tuple(sys.flags)))
    for library in _LIBRARIES:
        yield f"{library} {_version(library)}"
    yield _own_sources()
    yield repr(([(str(file.resolve()), file.name) for file in project.program_files], project.program))
    yield repr(
        (
            project.upstream is None,
            project.dims,
            dict(project.inputs),
            dict(project.stored),
            sorted(project.outputs),
            project.tests,
        )
    )
    yield repr(kept_statistics(project))
    yield repr(sorted((name, value) for name, value in os.environ.items() if _counts(name)))


def _counts(variable: str) -> bool:
    """Whether an environment variable may change a plan."""
    return variable.startswith(("DDCORE_", "POLARS_")) and variable not in _WITHOUT_EFFECT


@cache
def _version(library: str) -> str:
    return "none" if find_spec(library) is None else version_of(library)


@cache
def _own_sources() -> str:
    """A digest of the names, sizes and times of this package's modules. By their size and time Python itself knows
    whether a module has to be compiled again, so no other module is running; and what a process has imported stays.
    Raises OSError.
    """
    state = hashlib.blake2b(digest_size=16)
    for folder in (Path(version.__file__).parent.parent, Path(__file__).parent.parent):
        for path, status in sorted(_python_files(str(folder))):
            state.update(f"{path} {status.st_size} {status.st_mtime_ns} ".encode(errors="surrogatepass"))
    return state.hexdigest()


def _python_files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.name not in ("__pycache__", "compiled") and entry.is_dir():
                yield from _python_files(entry.path)


# -- the files ---------------------------------------------------------------------------------------------------------


def _read(project: Project, file: Path) -> KeptPlan | None:
    """An entry that is whole and of these sources. Raises OSError, ValueError, KeyError, TypeError."""
    if not file.exists() or distrust(file.parent):
        return None
    body = read_sealed(file)
    if body is None:
        return None
    head, _, pickled = body.partition(b"\n")
    fields = json.loads(head)
    if not Sources(**fields["sources"]).are_current():
        return None
    note_use(file)
    inputs = {name: project.inputs[name] for name in fields["inputs"]}
    return KeptPlan(fields["fingerprint"], inputs, project.dims, fields["now"], pickled)


def _write(file: Path, sources: Sources, program: PlannedProgram) -> None:
    """Write an entry, whole. Raises OSError."""
    plan = program.plan
    head = {"fingerprint": plan.fingerprint, "inputs": [*plan.inputs], "now": plan.uses_now, "sources": vars(sources)}
    write_sealed(file, json.dumps(head).encode() + b"\n" + _pickled(program))


def _pickled(program: PlannedProgram) -> bytes:
    """A plan as bytes; empty where it holds something that has no name in a library, such as a user's function."""
    tests = tuple(replace(test, check=Planned()) for test in program.tests)
    content = io.BytesIO()
    try:
        _Pickler(content, protocol=5).dump((program.plan, tests))
    except Exception:  # an object may raise anything when it is pickled
        return b""
    return content.getvalue()


class _Pickler(pickle.Pickler):
    """Refuses functions and classes that are not of this package or of a library that plans are made of."""

    def reducer_override(self, value: Any) -> Any:
        """Raise PicklingError for them; anything else is pickled as usual."""
        if isinstance(value, type | FunctionType) and not _is_trusted(value.__module__):
            raise pickle.PicklingError(f"{value.__module__}.{value.__qualname__} is not of a library")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Loads what :class:`_Pickler` writes."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """A function or class of one of these libraries. Raises UnpicklingError."""
        if not _is_trusted(module):
            raise pickle.UnpicklingError(f"{module}.{name} is not of a library")
        found: Callable[..., Any] = super().find_class(module, name)
        return found


def _is_trusted(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _TRUSTED
