"""The user's program file: imported, and its function checked against the project's inputs.

A program is code: loading it runs whatever stands at its top level.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ddcore.errors import DdError, ProgramError, UsageError, is_interrupt
from ddcore.io.project import NOT_IN_COLUMNS, Project
from ddcore.wording import described, listed, meant, shown

__all__ = ["load_program"]


def load_program(project: Project) -> Callable[..., Any]:
    """The program function of ``project``, its file freshly imported.

    The file becomes a module under a private name that depends on its path alone, with its folder on ``sys.path`` so
    that it can import its neighbours. Whatever sends functions of that module to another process has to send them by
    value: the module is not importable there.

    Raises UsageError when the file is not there, ProgramError when it does not import, has no such function, or the
    function's parameters are not the project's inputs. What the function itself raises becomes a ProgramError, too.
    """
    file = project.program_file
    if not file.is_file():
        raise UsageError(
            f"{shown(project.file)}: [project] program: there is no file {shown(file)}",
            meant(file.name, [other.name for other in file.parent.glob("*.py")])
            or 'name the one to fold: program = "FILE.py:FUNCTION"',
        )
    module = _imported(file)
    function = getattr(module, project.program_function, None)
    if not callable(function):
        there = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise ProgramError(
            f"{shown(file)} has no function {project.program_function!r}; it has: {listed(there)}",
            meant(project.program_function, there) or f"name the function in {shown(project.file)}, [project] program",
        )
    _check_parameters(project, function)
    return _placed(function, file)


def _placed(function: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """``function``, whose errors name the line of the program."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            returned = function(*arguments, **named)
        except DdError:
            raise
        except BaseException as error:  # sys.exit() in a program is no success of the run
            if is_interrupt(error):
                raise
            raise ProgramError(
                f"{_place_of(error, file.resolve())}: the program fails: {described(error)}",
                "fix the file, then run again",
            ) from error
        _check_columns(returned)
        return returned

    return called


def _check_columns(returned: Any) -> None:
    """Raises ProgramError for an output with a column name that its table cannot have."""
    for name, output in returned.items() if isinstance(returned, Mapping) else ():
        known: dict[str, str] = {}
        for column in getattr(output, "columns", ()):
            first = known.setdefault(column.casefold(), column)
            if first != column:
                raise ProgramError(
                    f"output {name}: Delta tables take {first} and {column} for the same column", "rename one of them"
                )
            if not column or set(column) & NOT_IN_COLUMNS or not column.isprintable():
                raise ProgramError(
                    f"output {name}: Delta tables do not take the column name {ascii(column)[:60]}",
                    "rename the column, with letters, digits and _",
                )


def _imported(file: Path) -> ModuleType:
    file = file.resolve()
    name = "_ddcore_program_" + hashlib.blake2b(str(file).encode(), digest_size=6).hexdigest()
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    linecache.checkcache(str(file))
    sys.modules[name] = module
    try:
        # Compiled from the text: a .pyc is judged by its time stamp, and a program edited twice in a second is stale.
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if is_interrupt(error):
            raise
        what = f"{type(error).__name__}: {error.msg}" if isinstance(error, SyntaxError) else described(error)
        raise ProgramError(
            f"{_place_of(error, file)}: the program does not import: {what}", "fix the file, then run again"
        ) from error
    return module


def _place_of(error: BaseException, file: Path) -> str:
    """``file:line`` of what failed: the syntax error, else the innermost frame in the program file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown(Path(error.filename))}:{error.lineno or 1}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{shown(file)}:{(lines[-1] if lines else None) or 1}"


def _check_parameters(project: Project, function: Callable[..., Any]) -> None:
    where = f"{shown(project.program_file)}: {project.program_function}()"
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ProgramError(
                f"{where}: the parameter {parameter} is not an input", "name each input: def program(edges, roots)"
            )
    asked = [name for name in parameters if name not in project.inputs]
    unused = [name for name in project.inputs if name not in parameters]
    if not asked and not unused:
        return
    sides = []
    if asked:
        sides.append(f"it asks for {listed(asked)}, which [inputs] of {shown(project.file)} lacks")
    if unused:
        sides.append(f"[inputs] has {listed(unused)}, which it does not take")
    hint = meant(asked[0], unused) if asked else ""
    raise ProgramError(
        f"{where} does not match the inputs: {'; '.join(sides)}", hint or "parameters are inputs, by name"
    )
