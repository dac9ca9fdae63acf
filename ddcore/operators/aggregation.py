"""Aggregations from rows, ``distinct`` among them: built-in aggregates, by kernels that process all versions of a
group at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

import polars as pl

from ddcore import kernels
from ddcore.base.digests import Part, digest
from ddcore.base.errors import DiffOverflow, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import Schema, Type
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.data.forms import marked
from ddcore.expressions.canonical import identity
from ddcore.expressions.parsing import parse
from ddcore.expressions.projections import check_condition, types_of
from ddcore.operators import arguments
from ddcore.operators.aggregates import AGGREGATES, Aggregate
from ddcore.operators.base import State
from ddcore.operators.block import Rounds
from ddcore.operators.evaluations import Changes, Evaluations, Portion, Targets
from ddcore.operators.gathering import GATHERED
from ddcore.operators.reduction import Reduction, ReductionStep, decode_key
from ddcore.text.wording import listed
from ddcore.traces.trace import Rows, gather

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block
    from ddcore.traces.sorted_batch import ColumnBatch

Named = tuple[str, str, str | None]
"""The name of a result, its aggregate, and the column of the argument."""

_T = TypeVar("_T")
_NOTHING = Type("int64")  # stands for the argument of an aggregate without one


@record
class Needed:
    """What the aggregates of a group need: the key columns and arguments, and which aggregate takes which argument.

    ``exprs``: expressions over rows of the source, by name. ``aggregates``: by result name, the kind and the argument's
    name in ``exprs``.
    """

    exprs: dict[str, pl.Expr]
    aggregates: tuple[Named, ...]

    @classmethod
    def of(
        cls, source: Schema, keys: Sequence[str], unnamed: Sequence[Any], aggregates: Mapping[str, Aggregate]
    ) -> Needed:
        """For groups by ``keys`` of an input with the schema ``source``.

        Equal arguments are one column, and plain columns keep their name so that an arrangement can be shared. Raises
        ProgramError.
        """
        check_names(keys, unnamed, aggregates)
        exprs, names, named = {key: pl.col(key) for key in keys}, dict[str, str](), list[Named]()
        numbers = count()
        for name, spec in aggregates.items():
            kind, expr = argument_of(source, f"agg({name}=...)", spec)
            if expr is None:
                named.append((name, kind, None))
                continue
            same = digest(arguments.checked(identity, expr))
            if same not in names:
                names[same] = argument_name(expr, exprs, source, numbers)
                exprs[names[same]] = expr
            named.append((name, kind, names[same]))
        return cls(exprs or {"_all": parse(0, bare_string="sql")}, tuple(named))


def check_names(keys: Sequence[str], unnamed: Sequence[Any], aggregates: Mapping[str, Any]) -> None:
    """Raise ProgramError for results without a name or with that of a key, and for what is no aggregate."""
    if unnamed:
        what = f"the aggregate {unnamed[0].kind}" if isinstance(unnamed[0], Aggregate) else type(unnamed[0]).__name__
        raise ProgramError(f"{caller()}: agg: {what} has no name", "name each result: agg(n=dd.count())")
    if not aggregates:
        raise ProgramError(f"{caller()}: agg() names no aggregate", "for example agg(n=dd.count())")
    for name, spec in aggregates.items():
        if not isinstance(spec, Aggregate):
            raise ProgramError(
                f"{caller()}: agg({name}=...) is {type(spec).__name__}, not an aggregate",
                f"for example {name}=dd.count() or {name}=dd.sum(...); there are {listed(AGGREGATES)}",
            )
        if name in keys:
            raise ProgramError(f"{caller()}: agg: {name} is a key already", "choose another name")
        if spec.frame is not None or spec.distinct:
            raise ProgramError(
                f"{caller()}: agg({name}=...): frames are of rows in an order", "use group_by(...).over(...)"
            )


def argument_of(source: Schema, where: str, spec: Aggregate) -> tuple[str, pl.Expr | None]:
    """The kind and the argument that compute an aggregate: an argument is null in rows that its condition leaves out.

    So ``count(where=p)`` is the sum of 1 where p. ``where``: the place in messages.
    """
    expr = None
    if spec.expr is not None:
        expr = arguments.single(source, spec.expr, where, "aggregate each column by itself")
        expr = _typed(source, where, spec.kind, expr)
    if spec.where is None:
        return spec.kind, expr
    condition = condition_of(source, where, spec.where)
    if expr is None:
        return "sum", pl.when(condition).then(pl.lit(1, dtype=pl.Int64))
    return spec.kind, filtered(expr, condition, arguments.checked(types_of, {"_": expr}, source)["_"])


def fields_of(source: Schema, where: str, spec: Aggregate) -> dict[str, tuple[pl.Expr, Type]]:
    """The fields of an aggregate of several, or of a list, with their types; those of a median as floats. Raises
    ProgramError where it does not take them.
    """
    found = {}
    for field, given in spec.fields.items():
        expr = arguments.single(source, given, where, "aggregate each column by itself")
        kind = arguments.checked(checked_at, where, types_of, {"_": expr}, source)["_"]
        takes, is_float = GATHERED[spec.kind].types_of(field), spec.kind == "median"
        if kind.name not in takes or (is_float and kind.is_wide):
            digits, other = (" of up to 18 digits", "float64") if kind.is_wide else ("", takes[0])
            wanted = "string" if "string" in takes else other
            raise ProgramError(
                f"{caller()}: {where}: there is no {spec.kind} of {kind}, only of {', '.join(takes)}{digits}",
                f"cast to {wanted} first",
            )
        found[field] = (expr.cast(pl.Float64()), Type("float64")) if is_float else (expr, kind)
    return found


def condition_of(source: Schema, where: str, given: Any) -> pl.Expr:
    """The condition on the rows of an aggregate. Raises ProgramError."""
    hint = "combine the columns with pl.all_horizontal or pl.any_horizontal"
    condition = arguments.single(source, given, f"{where}, where=", hint)
    arguments.checked(checked_at, f"{where}, where=", check_condition, condition, source)
    return condition


def filtered(expr: pl.Expr, condition: pl.Expr, kind: Type) -> pl.Expr:
    """An argument of a type, null where a condition is not true."""
    chosen: pl.Expr = pl.when(condition).then(expr)
    return marked(chosen.cast(kind.polars) if kind.name == "decimal" else chosen, kind)  # choosing widens decimals


def _typed(source: Schema, where: str, kind: str, expr: pl.Expr) -> pl.Expr:
    """The expression. Raises ProgramError if the aggregate does not take its type."""
    rule, argument = (
        AGGREGATES[kind],
        arguments.checked(checked_at, where, types_of, {"_": expr}, source)["_"],
    )
    if argument.name not in rule.takes:
        hint = f"cast to {rule.takes[0]} first"
        if argument.is_nested:
            hint = "take a field with struct.field(), or an element with list.get(), or use reduce()"
        elif rule.takes == ("bool",):
            hint = "compare with something, or cast to bool"
        raise ProgramError(
            f"{caller()}: {where}: there is no {kind} of {argument}, only of {', '.join(rule.takes)}", hint
        )
    return expr


def checked_at(where: str, check: Callable[..., _T], *given: Any) -> _T:
    """Run a check and put ``where`` in front of its message."""
    try:
        return check(*given)
    except ProgramError as error:
        raise ProgramError(f"{where}: {error.message}", error.hint) from None


def argument_name(expr: pl.Expr, taken: Mapping[str, Any], schema: Schema, numbers: Iterator[int]) -> str:
    """The name of a plain column unless it is taken, else one that no column has, with the next of ``numbers``."""
    roots = expr.meta.root_names()
    if len(roots) == 1 and expr.meta.is_column() and roots[0] in schema and roots[0] not in taken:
        return roots[0]
    names = (f"_argument_{number}" for number in numbers)
    return next(name for name in names if name not in taken and name not in schema)


@dataclass(frozen=True, eq=False)
class Aggregation(Reduction):
    """One row per group: its key and the aggregates: by result name the kind and the argument column."""

    signs = "positive"
    aggregates: tuple[Named, ...]
    result: Schema

    @classmethod
    def of(cls, source: Schema, keys: Sequence[str], aggregates: tuple[Named, ...], allow_negative: bool) -> Self:
        """For groups by ``keys`` of an input with the keys and the arguments. Raises ProgramError."""
        result = {
            name: AGGREGATES[kind].result(source[argument] if argument else _NOTHING)
            for name, kind, argument in aggregates
        }
        parts: list[Part] = [[name, kind, argument or []] for name, kind, argument in aggregates]
        negative = arguments.flag(allow_negative, "agg: allow_negative")
        text, columns = digest(keys, parts, str(negative)), {key: source[key] for key in keys} | result
        return cls(columns, text, tuple(keys), negative, aggregates, result)

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of an aggregation from rows."""
        return AggregationStep(self, plan, block, port)


@dataclass(frozen=True, eq=False)
class Distinct(Reduction):
    """One of each row whose count is positive: an aggregation by all columns, without aggregates."""

    name = "distinct"
    signs = "positive"

    @classmethod
    def of(cls, schema: Schema, allow_negative: bool) -> Distinct:
        """For an input of this schema."""
        negative = arguments.flag(allow_negative, "distinct: allow_negative")
        return cls(schema, str(negative), tuple(schema), negative)

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a distinct block."""
        return AggregationStep(self, plan, block, port)


class ResultStep(ReductionStep):
    """The work of an operator with one row per group, of built-in aggregates."""

    quantity = "a sum or a count"
    short = True  # whether keys with short histories may be evaluated in one pass

    def __init__(self, reduction: Aggregation | Distinct, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(reduction, plan, block, port)
        self.aggregates = reduction.aggregates if isinstance(reduction, Aggregation) else ()
        self.result: Schema = reduction.result if isinstance(reduction, Aggregation) else {}
        self.one_pass: tuple[Any, ...] | None = None

    def changes(self, part: Portion, history: Rows, before: Rows, state: State, loops: np.ndarray) -> Changes:
        """Of keys with short histories in one pass, if there is one; of others in the steps one after the other."""
        if self.one_pass is None or not self.short or self.inputs > 1 or state.upper.shape[1]:
            return super().changes(part, history, before, state, loops)
        rest, updates, pending = kernels.short_histories.reduce(
            state.budget.tuning.short_history, loops, *self.one_pass, self.allow_negative,
            part.offsets, np.ascontiguousarray(part.times),
            history.offsets, history.words, history.times, history.diffs,
            before.offsets, before.words, before.times, before.diffs,
        )  # fmt: skip
        if self._has_too_many_digits(updates[3:]).any():
            return super().changes(part, history, before, state, loops)  # which says where
        changes = Changes(updates[0], updates[1:2], updates[3:], updates[2], pending[0], pending[1:])
        if len(rest) == 0:
            return changes
        others = super().changes(part.of(rest), history.of(rest), before.of(rest), state, loops)
        return changes.and_of(others, rest)

    def check_digits(self, results: np.ndarray, at: Evaluations, evals: np.ndarray) -> None:
        """Raises DiffOverflow for a sum of decimals with too many digits; the kernel checks int64 only."""
        beyond = np.argwhere(self._has_too_many_digits(results))
        if len(beyond):
            position, row = beyond[0]
            key, name = decode_key(self.port, at.keys, int(at.key_of()[evals[row]])), self.aggregates[position][0]
            raise DiffOverflow(f"{self.label}: key {key!r}: {name} has too many digits for {self.result[name]}")

    def _has_too_many_digits(self, results: np.ndarray) -> np.ndarray:
        """For each result, in the shape of ``results``, whether it is a sum of decimals beyond its type."""
        limits = [
            10**dtype.precision if kind == "sum" and (dtype := self.result[name]).name == "decimal" else 0
            for name, kind, _ in self.aggregates
        ]
        beyond = np.zeros(results.shape, dtype=np.bool_)
        for number, limit in enumerate(limits):
            if limit:
                beyond[number] = np.abs(results[number]) >= limit
        return beyond


class AggregationStep(ResultStep):
    """The work of an aggregation at one position."""

    def __init__(self, reduction: Aggregation | Distinct, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(reduction, plan, block, port)
        self._kinds, self._columns, self._units = self._arguments()
        picks = (kernels.aggregating.MIN, kernels.aggregating.MAX)
        self._picks_one = (
            self.short and len(self._kinds) == 1 and self._kinds[0] in picks and self._is_simple(*self.aggregates)
        )
        if all(map(self._is_simple, self.aggregates)):
            self.one_pass = self._kinds, self._columns, self._columns, self._units, 0

    def contested(self, state: State, rounds: Rounds, part: Portion, new: ColumnBatch) -> Portion:
        """For a minimum or a maximum: all keys but those that get nothing but rows which change neither."""
        if not self._picks_one or new.high is not None or len(new) == 0 or state.budget.tuning.short_history == 0:
            return part
        keys, starts = part.keys, part.offsets
        depth, frontier = self.inputs + len(rounds), state.frontier(rounds)
        before = gather(state.trace(self.output).batches, keys, 1, depth, frontier, budget=state.budget)
        rows = kernels.short_histories.contested(
            bool(self._kinds[0] == kernels.aggregating.MIN), starts,
            np.ascontiguousarray(new.words[self.port.key_words + self._columns[0]]),
            np.ascontiguousarray(new.times), new.diffs,
            before.offsets, before.words[0], before.times, before.diffs,
        )  # fmt: skip
        part.before = before
        if len(rows) == len(new):
            return part
        kept = np.zeros(len(new), dtype=np.bool_)
        kept[rows] = True
        return part.of(np.flatnonzero(kept[starts[:-1]]))

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """The aggregates of each group that is not empty, once."""
        words, tables = self._rank_strings(history.words)
        results, present, error = kernels.aggregating.aggregate(
            self.inputs, loops, self._kinds, self._columns, self._units, history.offsets, words, history.times,
            history.diffs, evaluations.offsets, evaluations.versions, self.allow_negative,
        )  # fmt: skip
        self.raise_if(error, evaluations, loops)
        evals = np.flatnonzero(present)
        results = np.take(results, evals, axis=1)
        self.check_digits(results, evaluations, evals)
        self._unrank(results, tables)
        return Targets(evals, results, np.ones(len(evals), dtype=np.int64))

    def _is_simple(self, aggregate: Named) -> bool:
        """Whether :func:`ddcore.kernels.short_histories.reduce` computes an aggregate."""
        _, kind, argument = aggregate
        if argument is None:
            return True
        dtype = self.port.schema[argument]
        number = getattr(kernels.aggregating, AGGREGATES[kind].kind(dtype))
        return number in kernels.short_histories.KINDS and not dtype.is_pooled

    def _rank_strings(self, words: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Words in which string arguments of min and max are ordered as strings.

        Also returns the tables from ranks to words, by aggregate.
        """
        tables: dict[int, np.ndarray] = {}
        types = [self.port.schema[name] for name in self.port.values]
        by_column: dict[int, np.ndarray] = {}
        for number, (kind, column) in enumerate(zip(self._kinds, self._columns, strict=True)):
            if kind not in (kernels.aggregating.MIN, kernels.aggregating.MAX):
                continue
            if column not in by_column:
                ranks, table = encoding.rank_words(words[column], types[column])
                if table is None:
                    continue
                words = words.copy() if not by_column else words
                words[column], by_column[column] = ranks, table
            tables[number] = by_column[column]
        return words, tables

    def _unrank(self, results: np.ndarray, tables: Mapping[int, np.ndarray]) -> None:
        """Turn ranks in the results back into words, in place."""
        for position, table in tables.items():
            valid = results[position] != encoding.NULL
            results[position, valid] = table[results[position, valid]]

    def _arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each aggregate the kernel's kind, the number of its value column, and the word of 1 in that column."""
        kinds, columns, units = [], [], []
        for _, kind, argument in self.aggregates:
            dtype = self.port.schema[argument] if argument is not None else _NOTHING
            kinds.append(getattr(kernels.aggregating, AGGREGATES[kind].kind(dtype)))
            columns.append(self.port.values.index(argument) if argument is not None else 0)
            units.append(10**dtype.scale)
        return np.array(kinds, dtype=np.int64), np.array(columns, dtype=np.int64), np.array(units, dtype=np.int64)
