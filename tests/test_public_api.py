"""The public names of ``ddcore`` with their signatures are those of ``public_api.txt``, so that review sees a change.

``python tests/test_public_api.py`` writes the file again.
"""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ddcore
from ddcore.base import errors
from ddcore.io.reading.opened import Logs, OpenedProject
from ddcore.io.reading.opened_log import Log
from ddcore.operators.aggregates import Aggregate
from ddcore.operators.window_functions import WindowFunction
from ddcore.program.collection import GroupBy

SNAPSHOT = Path(__file__).with_name("public_api.txt")
OURS = "ddcore"
RETURNED = (Aggregate, GroupBy, Log, Logs, OpenedProject, WindowFunction)
"""Classes that nobody imports: functions of the package give them."""


def lines() -> Iterator[str]:
    """A line for each public name, and for each public member of a class or a module of ours; then the errors."""
    for name in sorted(dir(ddcore)):
        yield from _described(name, getattr(ddcore, name))
    for returned in RETURNED:
        yield from _described(returned.__name__, returned)
    for name, error in sorted(vars(errors).items()):
        if inspect.isclass(error) and issubclass(error, errors.DdError):
            yield f"class errors.{name}({error.__mro__[1].__name__})"


def _described(name: str, value: Any) -> Iterator[str]:
    if not str(getattr(value, "__module__", None) or getattr(value, "__name__", "")).startswith(OURS):
        yield name  # such as a version, or a name of Polars
    elif inspect.ismodule(value):
        yield name
        for member in sorted(value.__all__):
            yield from _described(f"{name}.{member}", getattr(value, member))
    elif inspect.isclass(value):
        yield f"class {name}{_signature(value)}"
        inherited = [vars(base) for base in reversed(value.__mro__) if base.__module__.startswith(OURS)]
        for member, kind in sorted(dict(ChainMap(*reversed(inherited))).items()):
            if not member.startswith("_"):
                yield from _member(f"{name}.{member}", kind)
    else:
        yield f"{name}{_signature(value)}"


def _member(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"{name}: {inspect.get_annotations(value.fget)['return']}"  # type: ignore[arg-type]
    else:
        yield f"{name}{_signature(getattr(value, '__func__', value))}"


def _signature(value: Any) -> str:
    return str(inspect.signature(value)) if callable(value) else ""


def test_the_public_api_is_that_of_the_snapshot() -> None:
    now, kept = list(lines()), SNAPSHOT.read_text("utf-8").splitlines()
    gone, new = sorted(set(kept) - set(now)), sorted(set(now) - set(kept))
    hint = "if that is meant, say so in CHANGELOG.md and write it: .venv/bin/python tests/test_public_api.py"
    assert now == kept, f"gone: {gone}; new: {new}; {hint}"


def test_the_snapshot_has_what_programs_call() -> None:
    kept = SNAPSHOT.read_text("utf-8")
    assert "\nCollection.join(self" in kept and "\nreplay(program" in kept and "\nalgorithms." in kept
    assert "\nclass Session(program" in kept and "\nSession.fold(self" in kept


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(lines()) + "\n", "utf-8")
