"""Data tests: collections that must stay empty, as hidden outputs of a program, so that a test costs what changed.

A test is a function of the program's inputs and outputs; its rows are those that must not be there. The tests of
``dd.toml`` are written in operators here, so they mean the same to the engine and to the reference. Whether a test is
broken, and what becomes of the run then, is decided in :mod:`ddcore.jobs.running.data_tests`.

Commands read ``dd.toml`` first, so this module must not import anything heavy.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from ddcore.base.errors import ProgramError, UsageError
from ddcore.base.record import record
from ddcore.base.source_line import planning
from ddcore.text.wording import listed, meant

if TYPE_CHECKING:
    from ddcore.program.collection import Collection

PREFIX = "tests."  # of the names of hidden outputs; names in dd.toml have no dot
ERROR, WARN = "error", "warn"
SEVERITIES = (ERROR, WARN)
_MARK = "__ddcore_test__"

Tables = Mapping[str, "Collection"]
Program = Callable[..., Mapping[str, Any]]
Function = TypeVar("Function", bound=Callable[..., Any])


def is_test(output: str) -> bool:
    """Whether an output of a plan is the collection of a data test."""
    return output.startswith(PREFIX)


@record
class DataTest:
    """A test: ``name`` is unique, ``severity`` says what a run does when it is broken, ``error`` or ``warn``.

    ``start``: with one time dimension, the first version at which it must hold. ``source_line`` is ``file:line`` of
    where it is written.
    """

    name: str
    check: Check
    severity: str = ERROR
    start: int = 0
    source_line: str = ""

    @property
    def output(self) -> str:
        """The name of its hidden output."""
        return PREFIX + self.name


# -- tests of dd.toml --------------------------------------------------------------------------------------------------


@record
class Empty:
    """No row of a collection, or none that meets a condition in SQL."""

    of: str
    where: str = ""

    def rows(self, tables: Tables) -> Collection:
        """The rows themselves."""
        return _chosen(tables, self.of, self.where)


@record
class Unique:
    """No two rows that are equal in the ``key``, of those that meet a condition. Nulls are equal to each other."""

    of: str
    key: tuple[str, ...]
    where: str = ""

    def rows(self, tables: Tables) -> Collection:
        """The keys that occur several times, and how often."""
        from ddcore.operators.aggregates import count

        (number,) = _free(["rows"], self.key)
        counts: dict[str, Any] = {number: count()}
        table = _chosen(tables, self.of, self.where)
        _columns(table, self.key, "unique")
        counted = table.group_by(*self.key).agg(**counts)
        return counted.where(_column(number) > 1)


@record
class Side:
    """One side of an equation: the total of column ``sum``, or the number of rows, of those that meet a condition."""

    of: str
    sum: str = ""
    where: str = ""

    @property
    def name(self) -> str:
        """A name for its total."""
        return f"{self.of}_{self.sum or 'rows'}"


@record
class Agree:
    """Equal totals on two sides, in each group of equal values in ``by``. A side without rows has the total 0."""

    sides: tuple[Side, Side]
    by: tuple[str, ...] = ()

    def rows(self, tables: Tables) -> Collection:
        """The groups whose totals differ, with both totals."""
        from ddcore.operators.aggregates import sum

        side, amount = _free(["side", "amount"], self.by)
        names = _free([side.name for side in self.sides], self.by)
        left, right = (self._amounts(tables, number, side, amount) for number in range(2))
        for column in (amount, *self.by):
            one, other = (str(side.schema[column]) for side in (left, right))
            if one != other:
                what = "the totals" if column == amount else f"the columns {column}"
                raise ProgramError(
                    f"agree: {what} are of two types, {one} and {other}",
                    "make them equal in the program, with select()",
                )
        sums: dict[str, Any] = {n: sum(amount, where=_column(side) == number) for number, n in enumerate(names)}
        totals = left.concat(right).group_by(*self.by).agg(**sums)
        first, second = map(_column, names)
        return totals.where(first != second)

    def _amounts(self, tables: Tables, number: int, side: str, amount: str) -> Collection:
        """The groups of one side's rows, the number of the side, and what each row adds to its total."""
        one = self.sides[number]
        value = _column(one.sum) if one.sum else _literal(1)
        named = {name: _column(name) for name in self.by} | {side: _literal(number), amount: value}
        table = _chosen(tables, one.of, one.where)
        _columns(table, self.by, "by")
        _columns(table, [one.sum] if one.sum else [], "sum")
        return table.select(**named)


def _chosen(tables: Tables, name: str, where: str) -> Collection:
    _require(tables, name)
    if not where:
        return tables[name]
    try:
        return tables[name].where(where)
    except ProgramError as error:
        hint = error.hint
        if "pl." in hint:  # which cannot be written in dd.toml
            hint = """write a condition of SQL, with texts in single quotes: where = "price < 0 AND shop = 'north'\""""
        raise ProgramError(f"where: {error.message}", hint) from None


def _columns(table: Collection, names: Iterable[str], key: str) -> None:
    """Raises ProgramError for a name under ``key`` that is no column."""
    for name in names:
        if name not in table.schema:
            what = f"{key}: there is no column {name}: the columns are {listed(table.schema)}"
            raise ProgramError(what, meant(name, table.schema) or "name one of these")


def _require(tables: Tables, name: str, where: str = "") -> None:
    if name not in tables:
        raise ProgramError(
            f"{where}there is no input or output {name!r}; there are: {listed(tables)}",
            meant(name, tables) or "name one of these",
        )


def _free(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """These names, with a number behind those that are taken already."""
    used, free = {name.casefold() for name in taken}, []
    for name in names:
        choices = (name if number == 1 else f"{name}_{number}" for number in range(1, len(used) + 2))
        free.append(next(choice for choice in choices if choice.casefold() not in used))
        used.add(free[-1].casefold())
    return free


def _column(name: str) -> Any:
    import polars as pl

    return pl.col(name)


def _literal(value: int) -> Any:
    import polars as pl

    return pl.lit(value, dtype=pl.Int64)


# -- tests in a program of Python --------------------------------------------------------------------------------------


@overload
def test(function: Function) -> Function: ...
@overload
def test(*, severity: str = ERROR, from_version: int = 0) -> Callable[[Function], Function]: ...
def test(function: Any = None, *, severity: str = ERROR, from_version: int = 0) -> Any:
    """Marks a function of a program's file as a data test: it returns the rows that must not be there.

    Its parameters are inputs and outputs of the program, by name. ``severity="warn"``: a run in which it is broken goes
    on, and says so. ``from_version``: the first version at which it must hold; needs one time dimension. Raises
    ProgramError.
    """
    if function is None:
        return functools.partial(test, severity=severity, from_version=from_version)
    if not callable(function) or not hasattr(function, "__name__"):
        raise ProgramError(f"test takes a function, not {type(function).__name__}", "write @dd.test above a function")
    if severity not in SEVERITIES:
        raise ProgramError(
            f"test {function.__name__}: the severity is {severity!r}", f"one of: {', '.join(SEVERITIES)}"
        )
    if isinstance(from_version, bool) or not isinstance(from_version, int) or from_version < 0:
        raise ProgramError(
            f"test {function.__name__}: from_version is {from_version!r}", "give the number of a version, from 0 up"
        )
    setattr(function, _MARK, (severity, from_version))
    return function


@record
class _Written:
    """What a function of the program returns."""

    function: Callable[..., Any]

    @property
    def source_line(self) -> str:
        """``file:line`` of the function."""
        code = self.function.__code__
        return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"

    @property
    def _where(self) -> str:
        return f"{self.source_line}: test {self.function.__name__}"

    def rows(self, tables: Tables) -> Collection:
        parameters = inspect.signature(self.function).parameters
        for name, parameter in parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ProgramError(
                    f"{self._where}: the parameter {parameter} is no input or output", "name each: def test(edges)"
                )
            _require(tables, name, f"{self._where}: ")
        rows = self.function(**{name: tables[name] for name in parameters})
        if not isinstance(rows, type(next(iter(tables.values())))):
            raise ProgramError(
                f"{self._where} returns {type(rows).__name__}, not a collection",
                "return the rows that must not be there",
            )
        collection: Collection = rows
        return collection


@record
class Planned:
    """What a test looked for when its program was planned, of a plan that is kept: its hidden output is in the plan."""

    def rows(self, tables: Tables) -> Collection:
        """There are none any more: only the plan has them."""
        raise ProgramError("the tests of a kept plan cannot be planned again", "load the program anew")


Check: TypeAlias = Empty | Unique | Agree | _Written | Planned
"""What a test looks for: ``rows`` are those that must not be there."""


def in_module(names: Mapping[str, Any]) -> list[DataTest]:
    """The tests among the names of a program's file, also those that it imports, in order. Raises ProgramError."""
    tests: dict[str, DataTest] = {}
    seen: set[int] = set()
    for value in names.values():
        mark = getattr(value, _MARK, None) if inspect.isfunction(value) else None
        if mark is None or id(value) in seen:
            continue
        seen.add(id(value))
        severity, start = mark
        check = _Written(value)
        if value.__name__ in tests:
            raise ProgramError(
                f"{check.source_line}: a test {value.__name__} is there already: {tests[value.__name__].source_line}",
                "rename one of the functions",
            )
        tests[value.__name__] = DataTest(value.__name__, check, severity, start, check.source_line)
    return list(tests.values())


# -- programs with their tests -----------------------------------------------------------------------------------------


def with_tests(program: Program, tests: Iterable[DataTest]) -> Program:
    """A program that returns the collections of its tests, too, as outputs with the prefix.

    It raises ProgramError for tests that cannot be built; UsageError for those of ``dd.toml``.
    """
    tests = tuple(tests)

    @functools.wraps(program)
    def tested(*arguments: Any, **inputs: Any) -> Mapping[str, Any]:
        outputs = program(*arguments, **inputs)
        kinds = tuple({type(input_) for input_ in inputs.values()})  # collections of the engine or of the reference
        if not isinstance(outputs, Mapping) or not all(isinstance(output, kinds) for output in outputs.values()):
            return outputs  # the planner says what is wrong
        reserved = next((name for name in outputs if isinstance(name, str) and is_test(name)), None)
        if reserved is not None:
            raise ProgramError(
                f"the program's output {reserved}: names that begin with {PREFIX} are those of data tests",
                "choose another name",
            )
        if not tests:
            return outputs
        tables = {**inputs, **getattr(outputs, "temporary", {}), **outputs}
        return {**outputs, **{one.output: _rows(one, tables) for one in tests}}

    return tested


def _rows(test: DataTest, tables: Tables) -> Collection:
    if isinstance(test.check, _Written):
        return test.check.rows(tables)
    try:
        with planning(test.source_line):
            return test.check.rows(tables)
    except ProgramError as error:
        message = error.message.replace(f"{test.source_line}: ", "")
        raise UsageError(f"{test.source_line}: [tests.{test.name}] {message}", error.hint) from None
