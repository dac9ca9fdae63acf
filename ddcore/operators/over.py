"""``over``: each row of a group with columns that look at the rows around it, in an order.

Where one of its rows changed, a group is evaluated: its rows are sorted, and the differences are those of the rows
whose results differ. Of a large group only the rows near the changes are read if all functions look a few rows away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcore import kernels
from ddcore.base.digests import Part, digest
from ddcore.base.errors import DiffOverflow, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.expressions.expressions import identity, types_of
from ddcore.operators import arguments
from ddcore.operators.aggregates import AGGREGATES, Aggregate
from ddcore.operators.aggregation import argument_name, argument_of
from ddcore.operators.frame import TO_PEERS, WHOLE, Frame
from ddcore.operators.nearby import Reach, found_near, gathered_between
from ddcore.operators.onwards import Onwards, Sources, found_onwards
from ddcore.operators.partitions import Partitions, Spans, extremes
from ddcore.operators.reduction import Evaluations, Portion, Reduction, ReductionStep, Targets
from ddcore.operators.window_functions import WINDOW_FUNCTIONS, WindowFunction
from ddcore.text.wording import brief, listed
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow, State
    from ddcore.operators.block import Block, Rounds
    from ddcore.traces.sorted_batch import ColumnBatch

__all__ = ["Needed", "Order", "Over", "Window"]

NOTHING_BEFORE: Mapping[int, np.ndarray] = {}
_MOST_COPIES = 2**24
"""How often one row may occur: each copy is numbered."""
_FARTHEST = 4096  # rows that a function looks away: beyond, groups are evaluated as wholes


@dataclass(frozen=True)
class Order:
    """An order by columns: each ascending or descending, with nulls last or first."""

    by: tuple[str, ...]
    downs: tuple[bool, ...]
    firsts: tuple[bool, ...]

    @classmethod
    def of(cls, schema: Schema, keys: Sequence[str], by: Any, descending: Any, nulls_first: Any) -> Order:
        """Raises ProgramError."""
        names = arguments.names_of(by, "over")
        for name in names:
            arguments.require(schema, name, "over")
            if name in keys:
                raise ProgramError(f"{caller()}: over: {name} is a key", "order by other columns")
            if schema[name].is_nested:
                raise ProgramError(
                    f"{caller()}: over: {name} is {schema[name]}: lists and structs have no order",
                    "order by a column, or by one computed from a field with with_columns()",
                )
        flags = [cls._flags(value, len(names), what) for value, what in
                 ((descending, "descending"), (nulls_first, "nulls_first"))]  # fmt: skip
        return cls(tuple(names), *flags)

    @staticmethod
    def _flags(value: Any, number: int, what: str) -> tuple[bool, ...]:
        flags = [value] * number if isinstance(value, bool) else value
        if not isinstance(flags, list | tuple) or not all(isinstance(flag, bool) for flag in flags):
            raise ProgramError(f"{caller()}: over: {what} is {brief(value)}", "give True or False, or a list")
        if len(flags) != number:
            raise ProgramError(
                f"{caller()}: over: {number} columns, and {what} has {len(flags)}", "give one for each column"
            )
        return tuple(flags)


@dataclass(frozen=True)
class Window:
    """One result: the function, the columns of its argument and of its default, its number, and its frame."""

    name: str
    kind: str
    argument: str | None
    default: str | None
    number: int
    ignore_nulls: bool
    frame: Frame

    @property
    def text(self) -> Part:
        """What identifies it."""
        frame = self.frame
        ends = [f"{type(end).__name__} {end!r}" for end in (frame.start, frame.end)]
        rest = [str(self.number), str(self.ignore_nulls), frame.unit, *ends, frame.exclude]
        return [self.name, self.kind, self.argument or [], self.default or [], *rest]


@dataclass(frozen=True)
class Needed:
    """The columns of the source and those of the arguments, as expressions over it; and the results."""

    exprs: dict[str, pl.Expr]
    windows: tuple[Window, ...]

    @classmethod
    def of(cls, source: Schema, keys: Sequence[str], order: Order, functions: Mapping[str, Any]) -> Needed:
        """Raises ProgramError."""
        if not functions:
            raise ProgramError(f"{caller()}: over() names no function", "for example over('day', before=dd.lag('x'))")
        exprs = arguments.kept([*order.by, *(name for name in source if name not in order.by)])
        names, windows, numbers = dict[str, str](), list[Window](), count()

        def column(expr: pl.Expr | None) -> str | None:
            if expr is None:
                return None
            same = digest(arguments.checked(identity, expr))
            if same not in names:
                plain = expr.meta.is_column() and expr.meta.root_names()[0] in {*source} - {*keys}
                names[same] = expr.meta.root_names()[0] if plain else argument_name(expr, exprs, source, numbers)
                exprs[names[same]] = expr
            return names[same]

        for name, spec in functions.items():
            if name in source:
                raise ProgramError(f"{caller()}: over: {name} is a column already", "choose another name")
            kind, expr, default = _parts(source, name, spec)
            number = spec.number if isinstance(spec, WindowFunction) else 1
            ignores = isinstance(spec, WindowFunction) and spec.ignore_nulls
            frame = spec.frame or (TO_PEERS if order.by else WHOLE)
            windows.append(Window(name, kind, column(expr), column(default), number, ignores, frame))
        return cls(exprs, tuple(windows))


def _parts(source: Schema, name: str, spec: Any) -> tuple[str, pl.Expr | None, pl.Expr | None]:
    """The kind of a function, its argument and its default. Raises ProgramError."""
    where = f"over({name}=...)"
    if isinstance(spec, Aggregate) and spec.kind not in AGGREGATES:
        raise ProgramError(
            f"{caller()}: {where}: {spec.kind} is no aggregate of a frame", f"there are {listed(AGGREGATES)}"
        )
    if isinstance(spec, Aggregate):
        return (*argument_of(source, where, spec), None)
    if not isinstance(spec, WindowFunction):
        raise ProgramError(
            f"{caller()}: {where} is {type(spec).__name__}, not a function of rows in an order",
            f"there are the aggregates, such as dd.sum(...), and {listed(WINDOW_FUNCTIONS)}",
        )
    if spec.expr is None:
        return spec.kind, None, None
    hint = "give one column at a time"
    expr = arguments.single(source, spec.expr, where, hint)
    kind = arguments.checked(types_of, {name: expr}, source)[name]
    if spec.default is None:
        return spec.kind, expr, None
    default = arguments.single(source, spec.default, where, hint)
    other = arguments.checked(types_of, {name: default}, source)[name]
    if other.name == "int64" and kind.name in ("float64", "decimal"):
        default, other = default.cast(kind.polars), kind
    if other != kind:
        raise ProgramError(f"{caller()}: {where}: the default is {other}, the values are {kind}", "cast one of them")
    return spec.kind, expr, default


@dataclass(frozen=True, eq=False)
class Over(Reduction):
    """The rows of each group with one more column for each of ``windows``; ``columns``: those of the rows."""

    name = "over"
    signs = "positive"
    order: Order
    columns: tuple[str, ...]
    windows: tuple[Window, ...]

    @classmethod
    def of(
        cls, source: Schema, columns: Sequence[str], keys: Sequence[str], order: Order, *,
        windows: tuple[Window, ...], allow_negative: bool,
    ) -> Over:  # fmt: skip
        """For an input with the columns and the arguments. Raises ProgramError."""
        negative = arguments.flag(allow_negative, "over: allow_negative")
        schema = {name: source[name] for name in (*keys, *columns)}
        for window in windows:
            if window.frame.has_distance:
                if len(order.by) != 1:
                    raise ProgramError(
                        f"{caller()}: over({window.name}=...): a range by distance needs an order by one column",
                        f"it has {len(order.by)}: use rows_between() or groups_between()",
                    )
                window.frame.words(source[order.by[0]])
            argument = source[window.argument] if window.argument is not None else Type("int64")
            rule = WINDOW_FUNCTIONS.get(window.kind) or AGGREGATES[window.kind].result
            schema[window.name] = rule(argument)
        flags = [map(str, order.downs), map(str, order.firsts)]
        text = digest(columns, keys, order.by, *flags, [window.text for window in windows], str(negative))
        return cls(schema, text, tuple(keys), negative, order, tuple(columns), windows)

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of an over block."""
        return _OverStep(self, plan, block, port)


class _OverStep(ReductionStep):
    def __init__(self, over: Over, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(over, plan, block, port)
        self.over, self.types, self.values = over, self.port.schema, self.port.values
        order = over.order
        rest = [name for name in over.columns if name not in (*over.group, *order.by)]
        self.sorts = [*zip(order.by, order.downs, order.firsts, strict=True), *((name, False, False) for name in rest)]
        onwards = [_goes_on(window, self.types, over.schema) for window in over.windows]
        others = [window for window, is_onward in zip(over.windows, onwards, strict=True) if not is_onward]
        self.reach = _reach(others, self.types[order.by[0]]) if order.by else None
        self.goes_on = any(onwards)
        if self.goes_on and self.reach is not None and (self.reach.groups or self.reach.distance):
            self.reach = None
        assert not order.by or self.values[0] == self.output.values[0] == order.by[0]
        self.kept = [self.values.index(name) for name in over.schema if name in self.values]

    def contested(self, state: State, rounds: Rounds, part: Portion, new: ColumnBatch) -> Portion:
        """All keys, with the values of the order at which they change."""
        if self.reach is not None and not rounds and self.inputs == 1 and len(new):
            words = new.words[self.port.key_words]
            part.around = np.stack([least.reduceat(words, part.offsets[:-1]) for least in (np.minimum, np.maximum)])
        return part

    def histories(self, state: State, rounds: Rounds, part: Portion) -> tuple[Rows, Rows]:
        """Of large groups only what is near the changes, where the functions look only so far."""
        if part.around is None or self.reach is None:
            return super().histories(state, rounds, part)
        since, budget = np.minimum.reduceat(part.times[0], part.offsets[:-1]), state.budget
        if self.goes_on:
            inputs, outputs = (state.trace(port).batches for port in (self.port, self.output))
            sources = Sources(inputs, outputs, len(self.values), len(self.output.values))
            history, before, part.near = found_onwards(
                sources, part.keys, reach=self.reach.rows, down=self.over.order.downs[0], around=part.around,
                since=since, budget=budget,
            )  # fmt: skip
            return history, before
        history, part.near = found_near(
            state.trace(self.port).batches,
            part.keys,
            len(self.values),
            reach=self.reach,
            around=part.around,
            since=since,
            budget=budget,
        )
        batches = state.trace(self.output).batches
        return history, gathered_between(batches, part.keys, len(self.output.values), part.near, budget)

    def targets(self, part: Portion, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """Without the rows whose results do not change, of which the rows around may be missing."""
        anchors = part.near.anchors if isinstance(part.near, Onwards) else {}
        targets = self.evaluate(evaluations, history, loops, anchors)
        if part.near is None:
            return targets
        rows = np.flatnonzero(part.near.holds(evaluations.key_of()[targets.evals], targets.words[0]))
        return Targets(targets.evals[rows], np.take(targets.words, rows, axis=1), targets.counts[rows])

    def evaluate(
        self,
        evaluations: Evaluations,
        history: Rows,
        loops: np.ndarray,
        anchors: Mapping[int, np.ndarray] = NOTHING_BEFORE,
    ) -> Targets:
        """Sorts the rows of all groups at once, and computes each result for all of them. ``anchors``: by the number of
        a key the results of its first rows, of which the rows before are missing.
        """
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        present = np.flatnonzero(counts > 0)
        evals, rows, counts = evals[present], rows[present], counts[present]
        if len(counts) and counts.max() > _MOST_COPIES:
            place = evaluations.key_of()[evals[counts.argmax()]], evals[counts.argmax()]
            where = self._where(np.array(place), evaluations, loops)
            raise DiffOverflow(f"{where}: a row occurs {counts.max()} times, and over numbers {_MOST_COPIES} at most")
        words = np.take(history.words, rows, axis=1)
        sorts = [self._sortable(words, *sort) for sort in self.sorts]
        order = np.lexsort([column for pair in sorts[::-1] for column in pair[::-1]] + [evals])
        order = np.repeat(order, counts[order])  # each copy is a row
        evals, words = evals[order], np.take(words, order, axis=1)
        by = [(nulls[order], column[order]) for nulls, column in sorts[: len(self.over.order.by)]]
        partitions = Partitions(evals, by, self.over.order.firsts, self.over.order.downs)
        first = self._first(evals, words[self.kept], evaluations, anchors)
        kinds = {window.name: self._result(window, partitions, words, at=evaluations, loops=loops, first=first)
                 for window in self.over.windows} if len(evals) else {}  # fmt: skip
        results = [kinds.get(window.name, evals) for window in self.over.windows]
        return Targets(evals, np.stack([*words[self.kept], *results]), np.ones(len(evals), np.int64))

    def _sortable(self, words: np.ndarray, name: str, down: bool, first: bool) -> tuple[np.ndarray, np.ndarray]:
        """Whether nulls keep each back, and integers that ascend in the requested order."""
        column = words[self.values.index(name)]
        ranks, _ = encoding.rank_words(column, self.types[name])
        nulls = column == encoding.NULL
        return nulls != first, np.where(nulls, 0, ~ranks if down else ranks)

    def _first(
        self, evals: np.ndarray, kept: np.ndarray, at: Evaluations, anchors: Mapping[int, np.ndarray]
    ) -> _First | None:
        """The results of the first rows of groups without the rows before; ``kept``: the columns of rows that stay."""
        if not anchors or not len(evals):
            return None
        starts = np.flatnonzero(np.concatenate([np.ones(1, bool), evals[1:] != evals[:-1]]))
        keys = at.key_of()[evals[starts]]
        places, results = [], []
        for place, key in zip(starts.tolist(), keys.tolist(), strict=True):
            if key in anchors:
                columns = anchors[key]
                (row,) = np.flatnonzero((columns[: len(kept)] == kept[:, place : place + 1]).all(axis=0))
                places.append(place)
                results.append(columns[len(kept) :, row])
        if not places:
            return None
        of = {window.name: column for window, column in zip(self.over.windows, np.stack(results).T, strict=True)}
        return _First(np.array(places), of)

    def _result(
        self, window: Window, rows: Partitions, words: np.ndarray, *, at: Evaluations, loops: np.ndarray,
        first: _First | None,
    ) -> np.ndarray:  # fmt: skip
        """The words of one result."""
        goes_on = first is not None and _goes_on(window, self.types, self.over.schema)
        if window.argument is None and window.kind in WINDOW_FUNCTIONS:
            number = _number(window, rows)
            return first.added(window, number, rows) if first is not None and goes_on else number
        values = np.zeros(len(rows.places), np.int64)
        if window.argument is not None:
            values = words[self.values.index(window.argument)]
            if first is not None and goes_on:
                values = first.placed(window, values, rows)
        if window.kind in ("lag", "lead"):
            default = encoding.NULL if window.default is None else words[self.values.index(window.default)]
            return _neighbour(window, rows, values, default)
        spans = self._spans(window, rows)
        if window.kind in WINDOW_FUNCTIONS:
            return _value(window, values, spans)
        results = self._aggregate(window, rows, values, spans, at=at, loops=loops)
        is_number = window.argument is None and first is not None and goes_on
        return first.added(window, results, rows) if first is not None and is_number else results

    def _spans(self, window: Window, rows: Partitions) -> Spans:
        frame = window.frame
        if not frame.has_distance:
            return rows.spans(frame, (None, None), of_floats=False)
        kind = self.types[self.over.order.by[0]]
        return rows.spans(frame, frame.words(kind), of_floats=kind.name == "float64")

    def _aggregate(
        self, window: Window, rows: Partitions, values: np.ndarray, spans: Spans, *, at: Evaluations, loops: np.ndarray
    ) -> np.ndarray:
        """Raises DiffOverflow."""
        dtype = Type("int64") if window.argument is None else self.types[window.argument]
        kind = AGGREGATES[window.kind].kind(dtype)
        if kind in ("MIN", "MAX"):
            return _extreme(kind, values, dtype, spans)
        distinct, numbers = np.zeros(0, np.int64), rows.places
        if kind == "COUNT_DISTINCT":
            distinct, numbers = np.unique(values, return_inverse=True)
        results: np.ndarray
        results, beyond = kernels.windows.slide(
            getattr(kernels.aggregating, kind), 10**dtype.scale, np.ascontiguousarray(values),
            np.ascontiguousarray(numbers), len(distinct), rows.whole[0],
            np.ascontiguousarray(spans[0]), np.ascontiguousarray(spans[1]),
        )  # fmt: skip
        wide = self.over.schema[window.name]
        if beyond < 0 and kind == "SUM" and wide.name == "decimal":
            beyond = int(np.append(np.flatnonzero(np.abs(results) >= 10**wide.precision), -1)[0])
        if beyond >= 0:
            evaluation = int(rows.partition[beyond])
            place = self._where(np.array([at.key_of()[evaluation], evaluation]), at, loops)
            raise DiffOverflow(f"{place}: {window.name}: a sum is more than {wide} holds")
        return results


@dataclass(frozen=True)
class _First:
    """The first rows of groups whose rows before are missing: their places, and their results by window."""

    places: np.ndarray
    results: Mapping[str, np.ndarray]

    def added(self, window: Window, numbers: np.ndarray, rows: Partitions) -> np.ndarray:
        """Numbers that count rows, with those before."""
        before = np.zeros(int(rows.partition[-1]) + 1, np.int64)
        before[rows.partition[self.places]] = self.results[window.name] - numbers[self.places]
        result: np.ndarray = numbers + before[rows.partition]
        return result

    def placed(self, window: Window, values: np.ndarray, rows: Partitions) -> np.ndarray:
        """Values of which the first of each group stands for all before it, and for its peers where the frame has
        these.
        """
        values = values.copy()
        if window.frame.unit != "rows":
            is_peer = np.zeros(len(values), np.bool_)
            is_peer[self.places] = True
            values[is_peer[rows.peers[0]]] = encoding.NULL
        values[self.places] = self.results[window.name]
        return values


def _goes_on(window: Window, types: Schema, results: Schema) -> bool:
    """Whether a result is known from that of the row before and the rows from there on."""
    if window.kind in ("row_number", "rank", "dense_rank"):
        return True
    frame = window.frame
    if frame.start is not None or frame.end is None or frame.end or frame.exclude != "nothing":
        return False
    if window.kind == "first_value":
        return True
    if window.kind not in AGGREGATES or window.kind == "count_distinct":
        return False
    kind = AGGREGATES[window.kind].kind(Type("int64") if window.argument is None else types[window.argument])
    pooled = window.argument is not None and (types[window.argument].is_pooled or results[window.name].is_pooled)
    return kind in ("COUNT", "MIN", "MAX") or (kind == "SUM" and not pooled)


def _reach(windows: Sequence[Window], order: Type) -> Reach | None:
    """How far the functions look from a row; None: as far as the group goes, or the order is not looked up."""
    rows = groups = distance = 0
    for window in windows:
        frame, has_frame = window.frame, window.argument is not None or window.kind in AGGREGATES
        if window.kind in ("lag", "lead"):
            if window.ignore_nulls:
                return None
            rows = max(rows, window.number)
        elif not has_frame or frame.start is None or frame.end is None:
            return None
        elif frame.has_distance:
            if order.name == "float64":
                return None
            distance = max(distance, *(abs(int(end)) for end in frame.words(order)))
        elif frame.unit == "rows":
            rows = max(rows, abs(frame.start), abs(frame.end))
        elif frame.unit == "groups":
            groups = max(groups, abs(frame.start), abs(frame.end))
    is_near = max(rows, groups) <= _FARTHEST and distance < 2**61 and not order.is_pooled
    return Reach(rows, groups, distance) if is_near else None


def _number(window: Window, rows: Partitions) -> np.ndarray:
    """What depends on the place of a row alone."""
    start, end = rows.whole
    size, place = end - start, rows.places - start
    result: np.ndarray
    match window.kind:
        case "row_number":
            result = place + 1
        case "rank":
            result = rows.peers[0] - start + 1
        case "dense_rank":
            result = rows.group - rows.group[start] + 1
        case "ntile":
            short, longer = size // window.number, size % window.number  # the first parts have one row more
            before = longer * (short + 1)
            late = longer + (place - before) // np.maximum(short, 1)
            result = np.where(place < before, place // (short + 1), late) + 1
        case "percent_rank":
            result = encoding.words_of_floats((rows.peers[0] - start) / np.maximum(size - 1, 1))
        case _:
            result = encoding.words_of_floats((rows.peers[1] - start) / size)
    return result


def _listed(window: Window, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that count, and for each row, and the end, how many of them come before it."""
    counts = values != encoding.NULL if window.ignore_nulls else np.ones(len(values), np.bool_)
    return np.flatnonzero(counts), np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _neighbour(window: Window, rows: Partitions, values: np.ndarray, default: Any) -> np.ndarray:
    """The values of rows before or after."""
    if window.number == 0:
        return values
    listed, before = _listed(window, values)
    start, end = rows.whole
    wanted = before[:-1] - window.number if window.kind == "lag" else before[1:] + (window.number - 1)
    there = (wanted >= before[start]) & (wanted < before[end])
    places = listed[np.where(there, wanted, 0)] if len(listed) else rows.places
    result: np.ndarray = np.where(there, values[places], default)
    return result


def _value(window: Window, values: np.ndarray, spans: Spans) -> np.ndarray:
    """The first, the last or another value of each frame."""
    listed, before = _listed(window, values)
    lows, highs = before[spans[0]], before[spans[1]]
    sizes = highs - lows
    left = sizes.sum(axis=0) - 1 if window.kind == "last_value" else np.full(len(values), window.number - 1)
    result = np.full(len(values), encoding.NULL, dtype=np.int64)
    for low, size in zip(lows, sizes, strict=True):
        there = np.flatnonzero((left >= 0) & (left < size))
        result[there] = values[listed[low[there] + left[there]]]
        left = left - size  # below 0 once it was there
    return result


def _extreme(kind: str, values: np.ndarray, dtype: Type, spans: Spans) -> np.ndarray:
    """The least or the greatest value of each frame that is not null."""
    ranks, back = encoding.rank_words(values, dtype)
    nulls = values == encoding.NULL
    best = extremes(np.where(nulls, -(2**63), ranks if kind == "MAX" else ~ranks), spans)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(~nulls)])
    there = (before[spans[1]] - before[spans[0]]).sum(axis=0) > 0
    best = best if kind == "MAX" else ~best
    if back is not None and len(back):
        best = back[np.where(there, best, 0)]
    return np.where(there, best, encoding.NULL)
