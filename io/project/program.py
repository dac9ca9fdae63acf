"""The user's program file: imports it and checks its function against the project's inputs.

A program is code: loading it runs its top level.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError, ProgramError, UsageError, is_interrupt
from ddcore.base.record import record
from ddcore.io.project.column_names import check_fields, check_names
from ddcore.io.project.imports import import_beside
from ddcore.io.project.project import Project
from ddcore.io.project.statistics import kept_statistics
from ddcore.io.storage.foreign_files import kind_of
from ddcore.io.storage.store import UNREADABLE
from ddcore.program.data_tests import DataTest, in_module, is_test, with_tests
from ddcore.text.wording import described, listed, meant, shown

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.planning.plan import Plan


@record
class Program:
    """A program and its data tests. ``function`` returns the collections of the tests, too, as hidden outputs."""

    function: Callable[..., Any]
    tests: tuple[DataTest, ...]

    @property
    def comments(self) -> Mapping[str, str]:
        """What the text says before each view of SQL, by the view's name."""
        return getattr(self.function, "comments", {})

    @property
    def tags(self) -> Mapping[str, Sequence[str]]:
        """The tags that the text gives to outputs, by output."""
        return getattr(self.function, "tags", {})

    @property
    def notes(self) -> Sequence[str]:
        """What planning has left out of the text, once it is planned."""
        return getattr(self.function, "notes", ())

    @property
    def decisions(self) -> Sequence[Any]:
        """What planning decided about the joins of SQL, once it is planned."""
        return getattr(self.function, "decisions", ())


def load_program(project: Project) -> Callable[..., Any]:
    """The function of :func:`load`."""
    return load(project).function


def load(project: Project) -> Program:
    """Import the program file of ``project`` anew, and return its program function with the data tests.

    The file becomes a module under a private name that depends on its path alone, with its folder on ``sys.path`` so
    that it can import its neighbours. Other processes cannot import the module, so its functions must be sent to them
    by value. A file of SQL gives a function of all inputs.

    Raises UsageError when the file does not exist or has no such function, ProgramError when it cannot be imported, or
    the function's parameters are not the project's inputs. Errors in the function itself become ProgramErrors, too.
    """
    for file in project.program_files:
        _require_file(project, file)
    if project.is_sql:
        from ddcore import sql

        return Program(
            with_tests(sql.load(*project.program_files, dialect=project.dialect), project.tests), project.tests
        )
    file = project.program_file
    if project.is_dbt:
        return _of_dbt(project)
    module = _import(file)
    function = getattr(module, project.program_function, None)
    if not callable(function):
        names = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise UsageError(
            f"{shown(file)} has no function {project.program_function!r}; it has: {listed(names)}",
            meant(project.program_function, names) or f"name the function in {shown(project.file)}, [project] program",
        )
    _check_parameters(project, function)
    tests = (*project.tests, *in_module(vars(module)))
    _check_tests(tests, project)
    return Program(_with_place(with_tests(function, tests), file), tests)


def _of_dbt(project: Project) -> Program:
    """The models and tests that dbt compiled."""
    from ddcore import sql
    from ddcore.io.project.dbt import read_dbt

    dbt = read_dbt(project.program_file, project.inputs)
    function = sql.program_of(dbt.texts, dbt.heads, dialect=dbt.dialect)
    function.comments, function.tags = dbt.comments, dbt.tags  # type: ignore[attr-defined]
    function.notes.extend(dbt.notes)  # type: ignore[attr-defined]
    tests = (*project.tests, *dbt.tests)
    _check_tests(tests, project)
    return Program(with_tests(function, tests), tests)


def _require_file(project: Project, file: Path) -> None:
    """Raise UsageError for what is no file."""
    forms = 'name the one to fold: program = "FILE.py:FUNCTION", "FILE.sql" or "FOLDER/*.sql"'
    if kind := kind_of(file):
        raise UsageError(f"{shown(project.file)}: [project] program: {shown(file)} is {kind}, and not a file", forms)
    if not file.is_file():
        if project.is_dbt:
            raise UsageError(
                f"{shown(project.file)}: [dbt] project: there is no {shown(file)}",
                "compile the dbt project: dbt compile; or name its folder: [dbt] project",
            )
        others = [other.name for other in file.parent.glob("*") if other.suffix in (".py", ".sql")]
        raise UsageError(
            f"{shown(project.file)}: [project] program: there is no file {shown(file)}",
            meant(file.name, others) or forms,
        )


def _check_tests(tests: Iterable[DataTest], project: Project) -> None:
    """Raise ProgramError for tests whose tables would have the same name, and for a version where there are none."""
    known: dict[str, DataTest] = {}
    for test in tests:
        first = known.setdefault(test.name.casefold(), test)
        if first is not test:
            raise ProgramError(
                f"{test.source_line}: a test {first.name} is there already: {first.source_line}",
                "rename one of the two",
            )
        if test.start and len(project.dims) > 1:
            where, dims = f"{test.source_line}: test {test.name}: from_version", listed(project.dims)
            raise ProgramError(f"{where}: the times here have the dimensions {dims}", "leave it out")


def outputs_named(program: Program, project: Project, plan: Plan, texts: Iterable[str]) -> frozenset[str]:
    """The outputs of a program that the texts of ``--select`` name, by the tags of ``dd.toml`` and of its own text.
    UsageError.
    """
    from ddcore.planning.selecting import selected

    tags = {name: one.tags for name, one in project.outputs.items() if one.tags}
    return selected(plan, texts, {**program.tags, **tags})


def load_plan(project: Project) -> Plan:
    """The plan of the project's program, imported anew. Raises as :func:`plan_of`."""
    return plan_of(load(project), project)


def plan_of(program: Program, project: Project, only: Collection[str] | None = None) -> Plan:
    """The plan of the project's program, or of some of its outputs.

    Raises as :func:`load`, ProgramError where the program cannot be built or a table cannot have an output's
    columns, and UsageError for settings of an output that does not exist.
    """
    from ddcore.planning.planner import build

    try:
        plan = build(
            program.function,
            project.inputs if project.upstream is None else _read(program, project),
            project.dims,
            nonnegative=True,  # ingest checks every row
            origins={name: stored.origins for name, stored in project.stored.items()},
            only=only,
            statistics=kept_statistics(project),
        )
    except ProgramError as error:
        error.hint = "; ".join(filter(None, [error.hint, *_became(project, error.message)]))
        raise
    _check_columns(plan.outputs, plan.dims)
    ours = [name for name in plan.outputs if not is_test(name)]
    for name in project.outputs:
        if name not in ours and only is None:
            raise UsageError(
                f"dd.toml has [outputs.{name}] but the program returns {', '.join(ours)}",
                "name the section after an output, or remove it",
            )
    tests = {test.output for test in program.tests}
    for name in plan.outputs:
        if is_test(name) and name not in tests:  # the program's own outputs are checked before
            raise ProgramError(f"inspect: {name}: names that begin with tests. are those of data tests", "rename it")
    return plan


def _read(program: Program, project: Project) -> Mapping[str, Schema]:
    """Those of another project's inputs that a program reads: the parameters of its function, or what its SQL names.
    The others may change without a run of this one.
    """
    from ddcore.planning.planner import build

    if project.is_sql or project.is_dbt:
        plan = build(program.function, project.inputs, project.dims)
        needed = plan.upstream(plan.ends.values())
        names = {name for name, node in plan.sources.items() if node in needed}
    else:
        names = {*inspect.signature(program.function).parameters}
    return {name: schema for name, schema in project.inputs.items() if name in names}


def _became(project: Project, message: str) -> Iterator[str]:
    """What became of columns that inputs had before, of those that an error of the program names."""
    words = frozenset(re.findall(r"\w+", message))
    for name, stored in project.stored.items():
        for column, former in stored.former_names.items():
            if former in words and former not in project.inputs[name]:
                yield f"{former} is {column} now in the input {name}"
        for column in stored.dropped:
            if column in words:
                yield f"{column} was dropped from the input {name}"


def _with_place(function: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """``function``, with errors that name the line of the program."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except DdError:
            raise
        except BaseException as error:  # also SystemExit: sys.exit() in a program must not end the run with success
            if is_interrupt(error):
                raise
            raise ProgramError(
                f"{_place_of(error, file.resolve())}: the program fails: {described(error)}",
                "fix the file, then run again",
            ) from error

    return wrapper


def _check_columns(outputs: Mapping[str, Schema], dims: Sequence[str]) -> None:
    """Raise ProgramError for an output with a column name that its table cannot have, beside its own columns."""
    for name, columns in outputs.items():
        where = f"output {name}"
        try:
            check_names(columns, "column", (*dims, "diff"))
            for column, kind in columns.items():
                where = f"output {name}: column {column}"
                check_fields(kind)
        except ProgramError as error:
            raise ProgramError(f"{where}: {error.message}", error.hint) from None


def _import(file: Path) -> ModuleType:
    file = file.resolve()
    name = "_ddcore_program_" + hashlib.blake2b(str(file).encode(), digest_size=6).hexdigest()
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import_beside(file.parent)
    linecache.checkcache(str(file))
    sys.modules[name] = module
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if is_interrupt(error):
            raise
        what = f"{type(error).__name__}: {error.msg}" if isinstance(error, SyntaxError) else described(error)
        hint = UNREADABLE.get(error.errno or 0, "") if isinstance(error, OSError) else ""
        raise ProgramError(
            f"{_place_of(error, file)}: the program does not import: {what}", hint or "fix the file, then run again"
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
    unknown = [name for name in parameters if name not in project.inputs]
    unused = [name for name in project.inputs if name not in parameters and project.upstream is None]
    if not unknown and not unused:
        return
    sides = []
    if unknown:
        sides.append(f"it has the parameters {listed(unknown)}, which [inputs] of {shown(project.file)} lacks")
    if unused:
        sides.append(f"[inputs] has {listed(unused)}, which it has no parameter for")
    hint = meant(unknown[0], unused or project.inputs) if unknown else ""
    raise ProgramError(
        f"{where} does not match the inputs: {'; '.join(sides)}", hint or "parameters are inputs, by name"
    )
