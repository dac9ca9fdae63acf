"""The meaning of a program: every operator by its definition, every time computed from nothing.

The engine in the other modules must give the differences that :func:`replay` gives. This module shares no code with
the engine but what reads Polars' expressions, keeps no state from one time to the next, and is slow. It computes

    output at t        =  program( accumulate(inputs, t) )
    differences at t   =  output at t  -  differences at every earlier time

A collection is a ``Counter`` from row to count, a row is a tuple of Python values. Only the expressions of a
``select``, ``where`` or ``agg`` are evaluated by Polars, on each distinct row by itself. (Integers are computed on
128 bits, so none wraps around, except intermediate ones that a cast or a function makes narrower, such as the length of
a string.)

Counts are Python's integers, so no intermediate count overflows. These must be an int64: an aggregate, a count in the
frame of a ``reduce`` function, and the differences of the collections that operators with state store: the inputs of
``join``, ``distinct``, ``agg`` and ``reduce``, the results of ``reduce``, and the outputs (:class:`_Record`).

Cost: (number of grid times) x (rounds of the loops) x (rows), in Python. Meant for tens of rows and times.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import polars as pl
import polars_hash as plh

from ddcore.base.errors import DdError, DiffOverflow, Diverged, ExpressionError, NegativeMultiplicity, ProgramError
from ddcore.expressions import polars_json, syntax
from ddcore.expressions.syntax import Cast, Choice, Literal, Tree
from ddcore.program.constants import making

__all__ = [
    "NaiveCollection", "NaiveGroups", "accumulate", "differences", "evaluate", "grid", "log_of", "outputs_of", "replay",
]  # fmt: skip

Row = tuple[Any, ...]
Time = tuple[int, ...]
Rows = Counter[Row]
Columns = dict[str, pl.DataType]
Log = dict[tuple[Row, Time], int]
"""A consolidated log: for each row and time its diff, never 0."""

NAN = float("nan")
"""The only NaN a row may hold. Python finds an object equal to itself in tuples and dicts, NaN included."""


# Times ------------------------------------------------------------------------------------------------------------


def precedes(a: Time, b: Time) -> bool:
    """Whether ``a <= b`` in the product order: in every coordinate."""
    return all(x <= y for x, y in zip(a, b, strict=True))


def grid(times: Iterable[Time]) -> list[Time]:
    """Every combination of the coordinates that occur in ``times``, earlier ones before later ones.

    A collection can change only where some of its updates' times join, and the grid holds all joins of ``times``.
    Lexicographic order is one of the orders in which no time comes before one that precedes it.
    """
    coordinates = [sorted(set(axis)) for axis in zip(*times, strict=True)]
    return list(product(*coordinates)) if coordinates else []


def accumulate(frame: pl.DataFrame, time: Time, dims: Sequence[str]) -> Rows:
    """The collection at ``time``: of each row the sum of its diffs at times <= ``time``. Rows with sum 0 are absent."""
    columns = [name for name in frame.columns if name not in (*dims, "diff")]
    rows: Rows = Counter()
    for (row, when), diff in _updates(frame, columns, dims):
        if precedes(when, time):
            rows[row] += diff
    return _present(rows.items())


def differences(collection_at: Callable[[Time], Rows], times: Sequence[Time]) -> Log:
    """The one log whose accumulation at each of ``times`` is ``collection_at(time)`` (Moebius inversion).

    At each time: the collection there, minus the sum of the differences at earlier times.
    ``times`` holds the join of any two of its members, and no time before one that precedes it: see :func:`grid`.
    """
    log: Log = {}
    for time in times:
        change = Counter(collection_at(time))
        for (row, earlier), diff in log.items():
            if precedes(earlier, time):
                change[row] -= diff
        log |= {(row, time): diff for row, diff in change.items() if diff}
    return log


def log_of(frame: pl.DataFrame, dims: Sequence[str] = ("version",)) -> Log:
    """The log that a frame of updates (row columns, ``dims``, ``diff``) spells, consolidated."""
    columns = [name for name in frame.columns if name not in (*dims, "diff")]
    log: Counter[tuple[Row, Time]] = Counter()
    for update, diff in _updates(frame, columns, dims):
        log[update] += diff
    return {update: diff for update, diff in log.items() if diff}


def _updates(
    frame: pl.DataFrame, columns: Sequence[str], dims: Sequence[str]
) -> Iterable[tuple[tuple[Row, Time], int]]:
    for values in frame.select(*columns, *dims, "diff").iter_rows():
        row, time = values[: len(columns)], values[len(columns) : -1]
        yield (_canonical(row), time), values[-1]


# Programs ---------------------------------------------------------------------------------------------------------


def evaluate(
    program: Callable[..., Mapping[str, Any]], inputs: Mapping[str, Rows], schemas: Mapping[str, Mapping[str, Any]]
) -> dict[str, Rows]:
    """The program's outputs and its inspected collections on these inputs, from nothing.

    ``schemas`` names and types the columns of each input.
    """
    collections = {name: NaiveCollection(_columns(schemas[name]), rows.items()) for name, rows in inputs.items()}
    inspected = _recorders[-1].inspected = {}
    with making(_constant):
        outputs = {name: output.rows for name, output in program(**collections).items()}
    return outputs | {name: _by_round(points) for name, points in inspected.items()}


def _constant(frame: pl.DataFrame) -> NaiveCollection:
    """The rows that a program spells out, at every time."""
    _recorders[-1].spelled = True
    columns = {name: _widened(dtype) for name, dtype in frame.schema.items()}
    return NaiveCollection(columns, ((row, 1) for row in frame.iter_rows()))


def outputs_of(
    program: Callable[..., Mapping[str, Any]],
    inputs: Mapping[str, pl.DataFrame],
    outputs: Mapping[str, Mapping[str, pl.DataType]],
) -> dict[str, pl.DataFrame]:
    """The program's outputs on collections, from nothing: frames of the row's columns and ``diff``, its count.

    ``outputs`` names and types the columns of each output.
    """
    schemas = {name: {c: _widened(t) for c, t in frame.schema.items() if c != "diff"} for name, frame in inputs.items()}
    with _recording() as record:
        found = evaluate(program, {name: accumulate(frame, (), ()) for name, frame in inputs.items()}, schemas)
    _require_int64_differences({(): record})
    frames = {}
    for name, columns in outputs.items():
        rows = [(*map(_python, row, columns.values()), _fits(count)) for row, count in found[name].items()]
        frames[name] = pl.DataFrame(rows, schema={**columns, "diff": pl.Int64()}, orient="row")
    return frames


def replay(
    program: Callable[..., Mapping[str, Any]], dims: Sequence[str] = ("version",), **frames: pl.DataFrame
) -> dict[str, Log]:
    """The differences of every output, given those of every input: frames of row columns, ``dims`` and ``diff``."""
    schemas = {
        name: {column: _widened(dtype) for column, dtype in frame.schema.items() if column not in (*dims, "diff")}
        for name, frame in frames.items()
    }
    times = grid(time for frame in frames.values() for time in frame.select(dims).iter_rows())
    least = (0,) * len(dims)
    records: dict[Time, _Record] = {}

    def outputs_at(time: Time) -> dict[str, Rows]:
        inputs = {name: accumulate(frame, time, dims) for name, frame in frames.items()}
        try:
            with _recording() as records[time]:
                return evaluate(program, inputs, schemas)
        except NegativeMultiplicity as error:
            raise NegativeMultiplicity(error.op, error.key, time, error.count) from None
        except Diverged as error:
            raise Diverged(error.loop, (*time, error.round), error.round, error.moving) from None

    with contextlib.suppress(DdError):
        outputs_at(least)
    times = grid([least, *times]) if records.pop(least).spelled else times
    outputs = {time: outputs_at(time) for time in times}
    _require_int64_differences(records)
    names = outputs[times[0]] if times else []
    logs = {name: differences(lambda time, name=name: outputs[time][name], times) for name in names}  # type: ignore[misc]
    for log in logs.values():
        for diff in log.values():
            _fits(diff)
    return logs


# Collections of operators with state --------------------------------------------------------------------------------


class _Record:
    """The inputs and results of operators with state at one time, by the number of the call and, for calls inside of
    loops, by the rounds.

    A program makes the same calls at every time, but its loops may take different numbers of rounds.
    ``inspected`` has the inspected collections by name and rounds; ``blind`` ones are only noted (``missed``).
    """

    def __init__(self, rounds: Sequence[Any] = ()) -> None:
        self.calls: defaultdict[Time, dict[Any, Rows]] = defaultdict(dict)
        self.numbers = [0] * (len(rounds) + 1)  # of the next call, for each enclosing loop
        self.rounds: list[Any] = list(rounds)
        self.inspected: dict[str, dict[Any, Rows]] = {}
        self.blind = self.missed = False
        self.spelled = False  # whether the program spells out rows, which are there from the least time on

    def keep(self, rows: Rows) -> None:
        """Record the collection of the next call."""
        self.numbers[-1] += 1
        self.calls[tuple(self.numbers)][tuple(self.rounds)] = rows

    def inspect(self, name: str, collection: NaiveCollection) -> None:
        """Record a collection in these rounds of the loops that it is in."""
        self.missed |= self.blind
        if not self.blind:
            self.inspected.setdefault(name, {})[tuple(self.rounds[: collection.loops])] = collection.rows

    @contextlib.contextmanager
    def round(self, number: Any) -> Iterator[None]:
        """Record calls as inside of a loop, in this round."""
        self.numbers.append(0)
        self.rounds.append(number)
        yield
        self.numbers.pop()
        self.rounds.pop()

    def at(self, call: Time, rounds: Time) -> Rows:
        """The collection of the call in these rounds."""
        return _settled(self.calls[call], rounds)


def _settled(collections: Mapping[Any, Rows], rounds: tuple[Any, ...]) -> Rows:
    """The collection in these rounds. After its fixed point a loop stays as in its last round."""
    reached: tuple[Any, ...] = ()
    for number in rounds:
        numbers = {each[len(reached)] for each in collections if each[: len(reached)] == reached}
        reached += (max(each for each in numbers if each <= number),)
    return collections[reached]


def _by_round(collections: Mapping[Any, Rows]) -> Rows:
    """The differences between the rounds of a collection, as counts of rows that end with their rounds.

    A round of a loop with priorities is (whether there is one, the priority, the round): see ``_by_priority``.
    """
    axes = [sorted(set(axis)) for axis in zip(*collections, strict=True)]
    at = {rounds: _settled(collections, rounds) for rounds in product(*axes)}
    rows: Rows = Counter()
    for places in product(*(range(len(axis)) for axis in axes)):
        columns: Row = ()
        for axis, place in zip(axes, places, strict=True):
            number = axis[place]  # a tuple if the loop has priorities
            columns += (number[1] if number[0] else None, number[2]) if isinstance(number, tuple) else (number,)
        for back in product((0, 1), repeat=len(axes)):  # on each axis: this round, less the one before
            before = [place - step for place, step in zip(places, back, strict=True)]
            if min(before, default=0) >= 0:
                for row, count in at[tuple(axis[place] for axis, place in zip(axes, before, strict=True))].items():
                    rows[row + columns] += count * (-1) ** sum(back)
    return _present(rows.items())


_recorders: list[_Record] = [_Record()]
"""The active recorder is the last one; records outside of :func:`replay` are not read."""


@contextlib.contextmanager
def _recording() -> Iterator[_Record]:
    _recorders.append(_Record())
    try:
        yield _recorders[-1]
    finally:
        _recorders.pop()


def _require_int64_differences(records: Mapping[Time, _Record]) -> None:
    """Raise DiffOverflow if a recorded collection, over all times and rounds, has a difference that is no int64."""
    dims = len(next(iter(records), ()))
    for call in {call for each in records.values() for call in each.calls}:

        def collection_at(point: Time, call: Time = call) -> Rows:
            return records[point[:dims]].at(call, point[dims:])

        counts = [count for each in records.values() for rows in each.calls[call].values() for count in rows.values()]
        if max(map(abs, counts), default=0) * 2 ** (dims + len(call)) < 2**63:
            continue  # a difference is a sum of at most 2**coordinates counts
        rounds = grid({rounds for each in records.values() for rounds in each.calls[call]}) if len(call) > 1 else [()]
        for diff in differences(collection_at, [(*time, *at) for time in records for at in rounds]).values():
            _fits(diff)


# Collections ------------------------------------------------------------------------------------------------------


def _scoped(kind: Any) -> Any:
    """Lets the results of a class's operators be in the same loops as what they are computed from."""
    for name, method in list(vars(kind).items()):
        function = method.__func__ if isinstance(method, staticmethod) else method
        if callable(function) and not name.startswith("_"):
            scoped = _with_loops(function)
            setattr(kind, name, staticmethod(scoped) if isinstance(method, staticmethod) else scoped)
    return kind


def _with_loops(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def scoped(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if isinstance(result, NaiveCollection):
            result.loops = max(result.loops, _loops_of([*arguments, *named.values()]))
        return result

    return scoped


def _loops_of(value: Any) -> int:
    """The number of loops that an argument of an operator is in."""
    if isinstance(value, list | tuple):
        return max(map(_loops_of, value), default=0)
    if isinstance(value, NaiveGroups):
        return value.collection.loops
    return value.loops if isinstance(value, NaiveCollection) else 0


@_scoped
class NaiveCollection:
    """A multiset of rows with named, typed columns, and the operators of ``ddcore.Collection``.

    ``columns`` maps names to Polars types; ``rows`` maps each row to its count, which may be negative but is never 0.
    ``loops`` is how many loops the collection is in: it is another one in each of their rounds.
    """

    def __init__(self, columns: Mapping[str, pl.DataType], rows: Iterable[tuple[Row, int]]) -> None:
        total: Rows = Counter()
        for row, count in rows:
            total[_canonical(row)] += count
        self.columns = dict(columns)
        self.rows = _present(total.items())
        self.loops = 0

    @property
    def schema(self) -> dict[str, str]:
        """Column names and the names of our types, in order."""
        return {name: _type_name(dtype) for name, dtype in self.columns.items()}

    # Row by row

    def select(self, *names: Any, **exprs: Any) -> NaiveCollection:
        """Each row replaced by the values of the expressions; counts of rows that become equal add up."""
        columns, mapped = self._map(_named(self._spread(names), exprs))
        return NaiveCollection(columns, zip(mapped, self.rows.values(), strict=True))

    def with_columns(self, *names: Any, **exprs: Any) -> NaiveCollection:
        """Each row with more columns, or with other values in existing ones."""
        return self.select(**({name: pl.col(name) for name in self.columns} | _named(self._spread(names), exprs)))

    def drop(self, *names: Any) -> NaiveCollection:
        """Each row without some columns."""
        dropped = [each.meta.output_name() for each in self._spread(names)]
        return self.select(*(name for name in self.columns if name not in dropped))

    def rename(self, names: Any) -> NaiveCollection:
        """Each row with columns of other names."""
        new = names if isinstance(names, Mapping) else {name: names(name) for name in self.columns}
        return self.select(**{new.get(name, name): pl.col(name) for name in self.columns})

    def where(self, *predicates: Any) -> NaiveCollection:
        """The rows for which every predicate is true: null is not."""
        _, truths = self._map({f"p{i}": _expression(predicate) for i, predicate in enumerate(predicates)})
        rows = [item for item, truth in zip(self.rows.items(), truths, strict=True) if all(truth)]
        return NaiveCollection(self.columns, rows)

    def filter(self, *predicates: Any) -> NaiveCollection:
        """``where``, by its name in Polars."""
        return self.where(*predicates)

    def flat_map(
        self, function: Callable[[pl.DataFrame], pl.DataFrame] | None = None, *, schema: Any = None, **lists: Any
    ) -> NaiveCollection:
        """Each row replaced by any number of rows, each with the row's count.

        With a list expression: by one row for each element, beside the other columns; several lists go side by side,
        and an empty or null list gives no row. With a function: by the rows that it returns for the row, identified by
        the column ``row``.
        """
        if function is None:
            types, values = self._map(_named([], lists))
            columns = self.columns | {name: _inner(dtype) for name, dtype in types.items()}
            rest = self._picker(name for name in self.columns if name not in lists)
            exploded = (
                (rest(row) + elements, count)
                for (row, count), of_row in zip(self.rows.items(), values, strict=True)
                for elements in zip(*(each or [] for each in of_row), strict=True)
            )
            names = [name for name in self.columns if name not in lists] + list(types)
            return NaiveCollection({name: columns[name] for name in names}, exploded)
        columns, counts = _columns(schema), list(self.rows.values())
        mapped = function(self._frame().with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64)))
        rows = _exactly(mapped.select("row", *columns), {"row": pl.Int64(), **columns}).rows()
        return NaiveCollection(columns, ((tuple(row), counts[number]) for number, *row in rows))

    def concat(self, *others: NaiveCollection) -> NaiveCollection:
        """All rows of all: counts add up. Columns are matched by name."""
        return NaiveCollection(self.columns, [item for each in (self, *others) for item in each._like(self)])

    def negate(self) -> NaiveCollection:
        """Every row with its count negated."""
        return NaiveCollection(self.columns, ((row, -count) for row, count in self.rows.items()))

    def join(self, other: NaiveCollection, on: Any, how: str = "inner") -> NaiveCollection:
        """Each pair of rows that agree on the key, as often as the product of their counts.

        A null in a key agrees with nothing. Columns: all of the left, then the right's without its key; one whose name
        the left has too gets ``_right``. Other values of ``how`` choose among the pairs and the rows that are in none:
        semi and anti give left rows by whether they are in a pair, left, right and full add to the pairs the rows that
        are in none, from the named side or both, with nulls for the other side and the key of their own.
        """
        pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in _names(on)}
        rest = [name for name in other.columns if name not in pairs.values()]
        left_key, right_key, right_rest = self._picker(pairs), other._picker(pairs.values()), other._picker(rest)
        _recorders[-1].keep(self.rows)
        _recorders[-1].keep(other.rows)
        partners: defaultdict[Row, list[tuple[Row, int]]] = defaultdict(list)
        for row, count in other.rows.items():
            if None not in right_key(row):
                partners[right_key(row)].append((row, count))
        paired = {row for row in self.rows if left_key(row) in partners}
        if how in ("semi", "anti"):
            chosen = ((row, count) for row, count in self.rows.items() if (row in paired) == (how == "semi"))
            return NaiveCollection(self.columns, chosen)
        rows = [
            (left + right_rest(right), left_count * right_count)
            for left, left_count in self.rows.items()
            for right, right_count in partners.get(left_key(left), [])
        ]
        if how in ("left", "full"):
            nothing = (None,) * len(rest)
            rows += [(row + nothing, count) for row, count in self.rows.items() if row not in paired]
        if how in ("right", "full"):
            keys = {left_key(row) for row in paired}
            unmatched = [(row, count) for row, count in other.rows.items() if right_key(row) not in keys]
            for row, count in unmatched:
                own = dict(zip(pairs, right_key(row), strict=True))
                rows.append((tuple(own.get(name) for name in self.columns) + right_rest(row), count))
        named = {f"{name}_right" if name in self.columns else name: other.columns[name] for name in rest}
        return NaiveCollection(self.columns | named, rows)

    def join_between(
        self,
        intervals: NaiveCollection,
        column: str,
        lower: str | None = None,
        upper: str | None = None,
        *,
        on: Any = (),
        closed: str = "both",
        open_nulls: bool = False,
    ) -> NaiveCollection:
        """Each pair of a row and an interval that its value lies in and that agree on the key, if there is one, as
        often as the product of their counts.

        ``closed`` are the ends that belong to an interval. A null agrees with nothing and lies in nothing; where an end
        is null, nothing lies in the interval, or with ``open_nulls`` there is no end. Columns: all of the row, then the
        interval's without key and ends; one whose name the row has too gets ``_right``.
        """
        pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in _names(on)}
        rest = [name for name in intervals.columns if name not in (*pairs.values(), lower, upper)]
        left_key, right_key, right_rest = (
            self._picker(pairs), intervals._picker(pairs.values()), intervals._picker(rest)
        )  # fmt: skip
        value = self._picker([column])
        begin, end = (intervals._picker([] if name is None else [name]) for name in (lower, upper))
        _recorders[-1].keep(self.rows)
        _recorders[-1].keep(intervals.rows)
        rows = [
            (row + right_rest(interval), count * other)
            for row, count in self.rows.items()
            for interval, other in intervals.rows.items()
            if left_key(row) == right_key(interval)
            and None not in left_key(row)
            and _lies_in(value(row)[0], begin(interval), end(interval), closed, open_nulls)
        ]
        named = {f"{name}_right" if name in self.columns else name: intervals.columns[name] for name in rest}
        return NaiveCollection(self.columns | named, rows)

    @staticmethod
    def delta_join(*relations: tuple[NaiveCollection, Sequence[str]]) -> NaiveCollection:
        """Every choice of a row of each relation in which equal attributes have equal values, none of them null where
        two relations share it.
        """
        columns: Columns = {}
        partial: list[tuple[dict[str, Any], int]] = [({}, 1)]
        for collection, names in relations:
            _recorders[-1].keep(collection.rows)
            longer = []
            for known, count in partial:
                for row, other in collection.rows.items():
                    values = dict(zip(names, row, strict=True))
                    if all(
                        values[name] is not None and values[name] == known[name]
                        for name in values.keys() & known.keys()
                    ):
                        longer.append((known | values, count * other))
            partial = longer
            columns |= dict(zip(names, collection.columns.values(), strict=True))
        return NaiveCollection(columns, ((tuple(known[name] for name in columns), count) for known, count in partial))

    def union(self, other: NaiveCollection, allow_negative: bool = False) -> NaiveCollection:
        """Each row as often as on the side that has more of it."""
        return self._by_row("union", other, max, allow_negative)

    def intersect(self, other: NaiveCollection, allow_negative: bool = False) -> NaiveCollection:
        """Each row as often as on the side that has fewer of it."""
        return self._by_row("intersect", other, min, allow_negative)

    def except_(self, other: NaiveCollection, allow_negative: bool = False) -> NaiveCollection:
        """Each row by how many more of it are here than in ``other``, if any."""
        return self._by_row("except_", other, lambda here, there: max(here - there, 0), allow_negative)

    def _by_row(
        self, name: str, other: NaiveCollection, counted: Callable[[int, int], int], allow_negative: bool
    ) -> NaiveCollection:
        theirs: Rows = Counter(dict(other._like(self)))
        _recorders[-1].keep(self.rows)
        _recorders[-1].keep(theirs)
        if not allow_negative:
            for side in (self.rows, theirs):
                for row, count in side.items():
                    _require_no_negative(name, row, [(row, count)])
        rows = {row: counted(self.rows[row], theirs[row]) for row in {*self.rows, *theirs}}
        return NaiveCollection(self.columns, rows.items())

    def arrange_by(self, *keys: Any) -> NaiveCollection:
        """The collection itself: the name of an index changes nothing."""
        return self

    # Group by group

    def distinct(self, allow_negative: bool = False) -> NaiveCollection:
        """Each row whose count is positive, once."""
        _recorders[-1].keep(self.rows)
        if not allow_negative:
            for row, count in self.rows.items():
                _require_no_negative("distinct", row, [(row, count)])
        return NaiveCollection(self.columns, ((row, 1) for row, count in self.rows.items() if count > 0))

    def group_by(self, *keys: Any) -> NaiveGroups:
        """The rows by their values in ``keys``; by no keys, all in one group. A null is a value like any other here."""
        return NaiveGroups(self, [each.meta.output_name() for each in self._spread(keys)])

    # Ids of rows

    def intern(self, id: str = "id", bits: int = 63, hash: Any = None, max_rounds: int = 1_000) -> NaiveCollection:
        """Each row that is there, once, with its id."""
        ids = self._ids(bits, hash, max_rounds)
        return self._with_ids(id, (((*row, number), 1) for row, number in ids.items()))

    def with_row_id(
        self, id: str = "row_id", bits: int = 63, hash: Any = None, max_rounds: int = 1_000
    ) -> NaiveCollection:
        """Each row with its id, as often as it occurs."""
        ids = self._ids(bits, hash, max_rounds)
        return self._with_ids(id, (((*row, number), self.rows[row]) for row, number in ids.items()))

    def attributes(
        self, *columns: Any, id: str = "row_id", bits: int = 63, hash: Any = None, max_rounds: int = 1_000
    ) -> dict[str, NaiveCollection]:
        """For each column the pairs of a row's id and its value."""
        names = [each.meta.output_name() for each in self._spread(columns)] or list(self.columns)
        interned = self.intern(id, bits, hash, max_rounds)
        return {name: interned.select(id, name) for name in names}

    def _with_ids(self, id: str, rows: Iterable[tuple[Row, int]]) -> NaiveCollection:
        """A collection with a column of ids: the result of a loop, and so in all loops around."""
        result = NaiveCollection(self.columns | {id: pl.Int64()}, rows)
        return _in_loops(result, result.rows, len(_recorders[-1].rounds))

    def _ids(self, bits: int, hash: Any, max_rounds: int) -> dict[Row, int]:
        """The id of each row. At round 0 all rows propose their hashes, at each later one those that have no id yet.

        A free id goes to the least row of those that propose it.
        """
        _recorders[-1].keep(self.rows)
        for row, count in self.rows.items():
            _require_no_negative("intern", row, [(row, _fits(count))])
        owners: dict[int, Row] = {}
        waiting = list(self.rows)
        for number in range(max_rounds):
            proposals: defaultdict[int, list[Row]] = defaultdict(list)
            for row, proposal in zip(waiting, self._hashes(waiting, number, bits, hash), strict=True):
                proposals[proposal].append(row)
            free = {proposal: rows for proposal, rows in proposals.items() if proposal not in owners}
            owners |= {proposal: min(rows, key=_row_order) for proposal, rows in free.items()}
            placed = set(owners.values())
            waiting = [row for row in waiting if row not in placed]
            if not waiting:
                return {row: proposal for proposal, row in owners.items()}
        raise Diverged("intern", (0, max_rounds), max_rounds, len(waiting))

    def _hashes(self, rows: Sequence[Row], number: int, bits: int, hash: Any) -> list[int]:
        """The hashes of rows at a round."""
        if hash is None:
            kinds = list(self.columns.values())
            return [_row_hash(row, kinds, number) >> (64 - bits) for row in rows]
        numbered = NaiveCollection(self.columns | {"round": pl.Int64()}, (((*row, number), 1) for row in rows))
        _, hashes = numbered._map({"hash": _expression(hash)})
        by_row = {row[:-1]: value for row, (value,) in zip(numbered.rows, hashes, strict=True)}
        return [by_row[row] for row in rows]

    # Loops

    def inspect(self, name: str) -> NaiveCollection:
        """This collection; its differences from round to round are one more output."""
        _recorders[-1].inspect(name, self)
        return self

    def iterate(
        self,
        body: Callable[[NaiveCollection], NaiveCollection],
        priority: Any = None,
        max_rounds: int = 10_000,
        at_limit: str = "fail",
    ) -> NaiveCollection:
        """The body applied to this, then to its result, and so on, until it returns its argument."""

        def only(variable: NaiveCollection) -> dict[str, NaiveCollection]:
            return {"variable": body(variable)}

        only.__name__ = getattr(body, "__name__", "iterate")
        given = {} if priority is None else {"variable": priority}
        return NaiveCollection.fixed_points({"variable": self}, only, given, max_rounds, at_limit)["variable"]

    @staticmethod
    def fixed_points(
        collections: Mapping[str, NaiveCollection],
        body: Callable[..., Mapping[str, NaiveCollection]],
        priority: Mapping[str, Any],
        max_rounds: int,
        at_limit: str,
    ) -> dict[str, NaiveCollection]:
        """The body applied to all of these, then to its results, and so on, until it returns its arguments.

        A priority changes no result, only what is inspected: then the loop is evaluated once more, as it says.
        """
        record = _recorders[-1]
        if record.blind or not priority:
            results = _fixed_points(collections, body, max_rounds, at_limit)
        else:
            record.blind, record.missed = True, False
            try:
                results = _fixed_points(collections, body, max_rounds, at_limit)
            finally:
                record.blind = False
            if record.missed:
                _by_priority(collections, body, priority, max_rounds)
        return {name: _in_loops(each, each.rows, len(record.rounds)) for name, each in results.items()}

    # Helpers

    def _frame(self) -> pl.DataFrame:
        """The distinct rows, in the order of ``self.rows``."""
        types = list(self.columns.values())
        rows = [tuple(map(_python, row, types)) for row in self.rows]
        return pl.DataFrame(rows, schema=self.columns, orient="row")

    def _map(self, exprs: Mapping[str, pl.Expr]) -> tuple[Columns, list[Row]]:
        """The types of ``exprs`` and their values on each distinct row, in the order of ``self.rows``.

        Integers are computed on 128 bits and have to fit their own type in the end. Operations that Polars does not
        have on 128 bits are computed unchanged.
        """
        frame = self._frame().with_row_index("_row")  # beside it, a literal has a value for each row
        exprs = {name: _in_full(expr, frame.clear()) for name, expr in exprs.items()}
        types = {name: _widened(dtype) for name, dtype in frame.clear().select(**exprs).schema.items()}
        try:
            try:
                values = _values(frame.cast({pl.Int64: pl.Int128}), exprs)
            except pl.exceptions.InvalidOperationError as error:
                if "not supported" not in str(error):
                    raise
                values = _values(frame, exprs)
            return types, [tuple(row) for _, *row in _cast(values, types).rows()]
        except pl.exceptions.PolarsError as error:
            raise ExpressionError(f"{', '.join(map(str, exprs.values()))}: {error}") from None

    def _spread(self, names: Iterable[Any]) -> list[pl.Expr]:
        """The expressions that these stand for, one by one: Polars computes them all, and each takes its own field."""
        spread: list[pl.Expr] = []
        for each in names:
            if isinstance(each, list | tuple):
                spread += self._spread(each)
                continue
            expr = pl.col(each) if isinstance(each, str) else each
            columns = pl.DataFrame(schema=self.columns).select(expr).columns
            named = expr.meta.output_name(raise_if_undetermined=False) is not None
            spread += [expr] if named else [pl.struct(expr).struct.field(name) for name in columns]
        return spread

    def _like(self, model: NaiveCollection) -> Iterable[tuple[Row, int]]:
        """Rows and counts with the columns in the order of ``model``."""
        if self.columns.keys() != model.columns.keys():
            raise ProgramError(f"columns {list(self.columns)} do not meet columns {list(model.columns)}")
        pick = self._picker(model.columns)
        return ((pick(row), count) for row, count in self.rows.items())

    def _picker(self, names: Iterable[str]) -> Callable[[Row], Row]:
        """A function from a row to its values in the columns ``names``."""
        order = list(self.columns)
        places = [order.index(name) for name in names]
        return lambda row: tuple(row[place] for place in places)


@_scoped
class NaiveGroups:
    """A collection and the key columns it is grouped by."""

    def __init__(self, collection: NaiveCollection, keys: list[str]) -> None:
        self.collection, self.keys = collection, keys

    def agg(self, *, allow_negative: bool = False, **aggregates: Any) -> NaiveCollection:
        """One row for each group with rows: its key and its aggregates.

        The input is the values of the aggregates' arguments, with their counts; an argument is null in rows for which
        the condition of the aggregate is not true. A negative count is an error; with ``allow_negative`` it is used as
        it is, and what has no positive count is no value for those aggregates that look for values.
        """
        arguments = self._arguments(aggregates)
        _recorders[-1].keep(arguments.rows)
        meanings = {name: MEANINGS[each.kind] for name, each in aggregates.items()}
        columns = {name: arguments.columns[name] for name in self.keys}
        for name, meaning in meanings.items():
            columns[name] = meaning.dtype(arguments.columns[f"{name} of"])

        rows = []
        for key, members in _by_key(arguments, len(self.keys)).items():
            if not allow_negative:
                _require_no_negative("agg", key, members)
            if _is_absent([meaning.linear for meaning in meanings.values()], [count for _, count in members]):
                continue
            results = []
            for place, (name, meaning) in enumerate(meanings.items()):
                values = [(row[place], count) for row, count in members if row[place] is not None]
                results.append(meaning.value(values, columns[name]))
            rows.append(((*key, *results), 1))
        return NaiveCollection(columns, rows)

    def _arguments(self, aggregates: Mapping[str, Any]) -> NaiveCollection:
        """The keys, and for each aggregate its argument: true for a count; null where its condition is not true."""
        everything = self.collection
        columns, pick = {name: everything.columns[name] for name in self.keys}, everything._picker(self.keys)
        rows = [pick(row) for row in everything.rows]
        for name, each in aggregates.items():
            condition = pl.lit(True) if each.where is None else _expression(each.where)
            counted = everything.where(condition)
            types, values = counted._map({"it": pl.lit(True) if each.expr is None else _expression(each.expr)})
            arguments = dict(zip(counted.rows, values, strict=True))
            columns[f"{name} of"] = types["it"]
            rows = [(*row, *arguments.get(own, (None,))) for row, own in zip(rows, everything.rows, strict=True)]
        return NaiveCollection(columns, zip(rows, everything.rows.values(), strict=True))

    def top_k(
        self, k: int, by: Any, descending: Any = False, ties: str = "cut", allow_negative: bool = False
    ) -> NaiveCollection:
        """The first k rows of each group in the order of the columns ``by``, nulls last, then of the other columns.

        Each row counts with its multiplicity. With ``ties`` rank: every row with fewer than k rows before it in
        the order of ``by`` alone.
        """
        _recorders[-1].keep(self.collection.rows)
        names = _names(by)
        downs = [descending] * len(names) if isinstance(descending, bool) else list(descending)
        rest = [name for name in self.collection.columns if name not in self.keys]
        source = self.collection.select(*self.keys, *rest)
        order = [*zip(names, downs, strict=True), *((name, False) for name in rest if name not in names)]

        def before(a: Row, b: Row, columns: list[tuple[str, bool]]) -> bool:
            for name, down in columns:
                x, y = a[rest.index(name)], b[rest.index(name)]
                if x is None or y is None:
                    if (x is None) != (y is None):
                        return y is None
                elif _order(x) != _order(y):
                    return (_order(x) > _order(y)) if down else (_order(x) < _order(y))
            return False

        rows = []
        for key, members in _by_key(source, len(self.keys)).items():
            if not allow_negative:
                _require_no_negative("top_k", key, members)
            present = [(row, count) for row, count in members if count > 0]
            for row, count in present:
                ahead = sum(
                    n for other, n in present if before(other, row, order if ties == "cut" else order[: len(names)])
                )
                number = count if ties == "rank" and ahead < k else max(0, min(count, k - ahead))
                rows.append(((*key, *row), number))
        return NaiveCollection(source.columns, rows)

    def reduce(
        self, function: Callable[[pl.DataFrame], pl.DataFrame], schema: Mapping[str, Any], allow_negative: bool = False
    ) -> NaiveCollection:
        """The result of ``function`` for each group's rows and counts, beside the group's key.

        ``function`` gets all groups at once: ``group`` (a number, not the key), the columns that are not keys and
        ``count``. It returns ``group``, the columns of ``schema`` and optionally ``count``. Rows whose count is
        negative are an error, or with ``allow_negative`` included like any other.
        """
        _recorders[-1].keep(self.collection.rows)
        source, columns = self.collection, _columns(schema)
        rest = {name: dtype for name, dtype in source.columns.items() if name not in self.keys}
        groups = _by_key(source.select(*self.keys, *rest), len(self.keys))
        group_rows = []
        for number, (key, members) in enumerate(groups.items()):
            if not allow_negative:
                _require_no_negative("reduce", key, members)
            rows = [(map(_python, row, rest.values()), count) for row, count in members]
            group_rows += [(number, *row, _fits(count)) for row, count in rows]
        frame = pl.DataFrame(group_rows, schema={"group": pl.Int64, **rest, "count": pl.Int64}, orient="row")
        returned = function(frame.sort("group", *rest))
        if "count" not in returned.columns:
            returned = returned.with_columns(count=pl.lit(1))
        keys, whole = list(groups), {"group": pl.Int64(), "count": pl.Int64()}
        result_rows = [
            ((*keys[number], *row), count)
            for number, count, *row in _exactly(returned.select(*whole, *columns), whole | columns).rows()
        ]
        result = NaiveCollection({name: source.columns[name] for name in self.keys} | columns, result_rows)
        _recorders[-1].keep(result.rows)
        return result


# Loops ------------------------------------------------------------------------------------------------------------


def _fixed_points(
    collections: Mapping[str, NaiveCollection],
    body: Callable[..., Mapping[str, NaiveCollection]],
    max_rounds: int,
    at_limit: str,
) -> dict[str, NaiveCollection]:
    record, before = _recorders[-1], dict(collections)
    loops = len(record.rounds) + 1
    current = {name: _in_loops(each, each.rows, loops) for name, each in collections.items()}
    record.numbers[-1] += 1
    for number in range(max_rounds):
        with record.round(number):
            following = _following(current, body)
        if all(following[name].rows == each.rows for name, each in current.items()):
            return following
        current, before = following, current
    if at_limit == "return":
        return current
    moving = sum(
        current[name].rows[row] != each.rows[row]
        for name, each in before.items()
        for row in {*each.rows, *current[name].rows}
    )
    raise Diverged(getattr(body, "__name__", "iterate"), (0, max_rounds), max_rounds, moving)


def _following(
    current: Mapping[str, NaiveCollection], body: Callable[..., Mapping[str, NaiveCollection]]
) -> dict[str, NaiveCollection]:
    """The variables of the next round."""
    returned = body(**current)
    return {name: _in_loops(each, dict(returned[name]._like(each)), each.loops) for name, each in current.items()}


def _by_priority(
    collections: Mapping[str, NaiveCollection],
    body: Callable[..., Mapping[str, NaiveCollection]],
    priority: Mapping[str, Any],
    max_rounds: int,
) -> None:
    """Record what the body inspects, if rows enter by priority: first those without one, then those with the least, and
    so on, each time beside the fixed point of those before.
    """
    entering: defaultdict[tuple[int, int], dict[str, Rows]] = defaultdict(dict)
    for name, each in collections.items():
        expr = priority.get(name)
        values = each._map({"priority": pl.col(expr) if isinstance(expr, str) else _expression(expr)})[1]
        for (row, count), (value,) in zip(each.rows.items(), values, strict=True):
            entering[(0, 0) if value is None else (1, value)].setdefault(name, Counter())[row] = count
    outer = _recorders[-1]
    record = _Record(outer.rounds)
    _recorders.append(record)
    try:
        current = {name: _in_loops(each, {}, len(outer.rounds) + 1) for name, each in collections.items()}
        for level in sorted({(0, 0), *entering}):
            for name, rows in entering[level].items():
                current[name] = current[name].concat(_in_loops(current[name], rows, 0))
            for number in range(max_rounds):
                with record.round((*level, number)):
                    following = _following(current, body)
                if all(following[name].rows == each.rows for name, each in current.items()):
                    break
                current = following
    finally:
        _recorders.pop()
    for name, points in record.inspected.items():
        outer.inspected.setdefault(name, {}).update(points)


def _in_loops(like: NaiveCollection, rows: Mapping[Row, int], loops: int) -> NaiveCollection:
    """A collection of these rows, with the columns of another, in so many loops."""
    collection = NaiveCollection(like.columns, rows.items())
    collection.loops = loops
    return collection


# Aggregates: each by its definition, of values with counts ----------------------------------------------------------


Values = list[tuple[Any, int]]
"""Values that are not null, with counts."""


class Meaning(NamedTuple):
    """An aggregate: ``value`` of the values and the result's type; the result's ``dtype`` by that of the argument.

    ``linear``: whether it adds up, so that values with negative counts are subtracted; else these are no values.
    """

    linear: bool
    dtype: Callable[[pl.DataType], pl.DataType]
    value: Callable[[Values, pl.DataType], Any]


def _number(values: Values, dtype: pl.DataType) -> int:
    return _is_value(sum(count for _, count in values))


def _distinct(values: Values, dtype: pl.DataType) -> int:
    counts: Counter[Any] = Counter()
    for value, count in values:
        counts[value] += count
    return sum(count > 0 for count in counts.values())


def _mean(values: Values, dtype: pl.DataType) -> float | None:
    number = sum(count for _, count in values)
    if number == 0:
        return None
    unusual = [value * math.copysign(1, count) for value, count in values if not math.isfinite(value)]
    if unusual:
        return math.copysign(1, number) * float(sum(unusual))
    return _float(sum((Fraction(value) * count for value, count in values), Fraction(0)) / number)


def _least(values: Values, dtype: pl.DataType) -> Any:
    return min((value for value, count in values if count > 0), key=_order, default=None)


def _greatest(values: Values, dtype: pl.DataType) -> Any:
    return max((value for value, count in values if count > 0), key=_order, default=None)


def _some(values: Values, dtype: pl.DataType) -> bool | None:
    present = [value for value, count in values if count > 0]
    return any(present) if present else None


def _every(values: Values, dtype: pl.DataType) -> bool | None:
    present = [value for value, count in values if count > 0]
    return all(present) if present else None


def _is_absent(linear: Sequence[bool], counts: Sequence[int]) -> bool:
    """Whether a group is none: it counts and adds up to nothing, or has no row with a value that could be picked."""
    return (sum(counts) == 0 and any(linear)) or (max(counts) <= 0 and not all(linear))


def _exact_sum(values: Values, dtype: pl.DataType) -> Any:
    """The exact sum; a float is rounded once, at the end. 0 without values."""
    unusual = [value * math.copysign(1, count) for value, count in values if not math.isfinite(value)]
    if unusual:
        return sum(unusual)
    total = sum((Fraction(value) * count for value, count in values), Fraction(0))
    if isinstance(dtype, pl.Decimal):
        return Decimal(_is_value(int(total * 10**dtype.scale), 10**18 - 1)).scaleb(-dtype.scale)
    if dtype == pl.Int64:
        return _is_value(int(total))
    return _float(total)


def _float(number: Fraction) -> float:
    """The float next to a number, ties to even."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _order(value: Any) -> tuple[bool, Any]:
    """A sort key under which NaN is greater than every number, and null inside a list or struct less than anything."""
    if isinstance(value, tuple):
        return (False, tuple((each is not None, 0 if each is None else _order(each)) for each in value))
    return (True, 0) if value is NAN else (False, value)


def _widest(dtype: pl.DataType) -> pl.DataType:
    return pl.Decimal(18, dtype.scale) if isinstance(dtype, pl.Decimal) else dtype


MEANINGS = {
    "count": Meaning(True, lambda dtype: pl.Int64(), _number),
    "count_distinct": Meaning(False, lambda dtype: pl.Int64(), _distinct),
    "sum": Meaning(True, _widest, _exact_sum),
    "mean": Meaning(True, lambda dtype: pl.Float64(), _mean),
    "min": Meaning(False, lambda dtype: dtype, _least),
    "max": Meaning(False, lambda dtype: dtype, _greatest),
    "any": Meaning(False, lambda dtype: dtype, _some),
    "all": Meaning(False, lambda dtype: dtype, _every),
}
"""The aggregates by name."""


def _by_key(collection: NaiveCollection, width: int) -> dict[Row, list[tuple[Row, int]]]:
    """For each value of the first ``width`` columns, the rest of the rows with their counts."""
    groups: defaultdict[Row, list[tuple[Row, int]]] = defaultdict(list)
    for row, count in collection.rows.items():
        groups[row[:width]].append((row[width:], count))
    return groups


# The hash of a row, as docs/programs.md specifies it -----------------------------------------------------------------


def _row_hash(row: Row, kinds: Sequence[pl.DataType], number: int) -> int:
    """64 bits of the values of a row and the number of a round."""
    state = number
    for value, kind in zip(row, kinds, strict=True):
        state = _scrambled(state * 0x9E3779B97F4A7C15 + _value_hash(value, kind, number))
    return state


def _scrambled(word: int) -> int:
    """The finalizer of splitmix64 (sources: Steele 2014)."""
    word %= 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


@functools.cache
def _value_hash(value: Any, kind: pl.DataType, number: int) -> int:
    if not isinstance(kind, pl.String | pl.Binary):
        return _scrambled(-(2**63) if value is None else _word(value, kind))
    if value is None:
        return 0x9AE16A3B2F90404F
    text = value if isinstance(kind, pl.String) else value.hex()
    hashed: int = pl.DataFrame({"text": [text]}).select(plh.col("text").nchash.xxh3_64(seed=number)).item()
    return hashed


def _word(value: Any, kind: pl.DataType) -> int:
    """A value of fixed width as an integer."""
    if isinstance(kind, pl.Float64):
        bits: int = 0x7FF8000000000000 if math.isnan(value) else struct.unpack("<q", struct.pack("<d", value))[0]
        return bits if bits >= 0 else bits ^ (2**63 - 1)
    if isinstance(kind, pl.Decimal):
        return int(value.scaleb(kind.scale))
    if isinstance(kind, pl.Date | pl.Datetime):
        return int(pl.Series([value], dtype=kind).to_physical().item())
    return int(value)


def _lies_in(value: Any, lower: Sequence[Any], upper: Sequence[Any], closed: str, open_nulls: bool) -> bool:
    """Whether a value lies in the interval with these ends, each a sequence of one value, or of none if it has none."""
    if value is None or (None in (*lower, *upper) and not open_nulls):
        return False
    begun = all(
        end is None or _order(end) < _order(value) or (_order(end) == _order(value) and closed in ("both", "left"))
        for end in lower
    )
    lasting = all(
        end is None or _order(value) < _order(end) or (_order(end) == _order(value) and closed in ("both", "right"))
        for end in upper
    )
    return begun and lasting


def _row_order(row: Row) -> list[Any]:
    """A sort key of rows: column by column, null before every value."""
    return [(value is not None, value is not None and _order(value)) for value in row]


# Rows, counts, types ------------------------------------------------------------------------------------------------


def _canonical(row: Iterable[Any]) -> Row:
    """Values that count as equal made equal in Python: one NaN, and 0.0 for -0.0. Null (None) equals itself.

    A list becomes the tuple of its elements, a struct the tuple of its fields: the column's type says which it is.
    """
    return tuple(map(_canonical_value, row))


def _canonical_value(value: Any) -> Any:
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return _canonical(value.values())
    return _canonical(value) if isinstance(value, list | tuple) else value


def _python(value: Any, dtype: Any) -> Any:
    """A canonical value as Polars takes it: lists as lists, structs as dicts."""
    if isinstance(dtype, pl.List) and value is not None:
        return [_python(each, dtype.inner) for each in value]
    if isinstance(dtype, pl.Struct) and value is not None:
        return {field.name: _python(each, field.dtype) for field, each in zip(dtype.fields, value, strict=True)}
    return value


def _present(counts: Iterable[tuple[Row, int]]) -> Rows:
    rows = Counter({row: count for row, count in counts if count})
    if any(abs(count) >= 2**127 for count in rows.values()):
        raise DiffOverflow("a count has more than 128 bits")
    return rows


def _fits(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise DiffOverflow(f"{number} is not an int64")
    return number


def _is_value(number: int, most: int = 2**63 - 1) -> int:
    """The number, if it is a value of its type; -2**63 is none, because it stands for null."""
    if abs(number) > most:
        raise DiffOverflow(f"{number} is more than {most}")
    return number


def _require_no_negative(op: str, key: Row, members: Iterable[tuple[Row, int]]) -> None:
    for _, count in members:
        if count < 0:
            raise NegativeMultiplicity(op, key, (), count)


def _names(keys: Any) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys)


def _values(frame: pl.DataFrame, exprs: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """The values of ``exprs`` beside ``_row``. Where floats are divided, each row is a frame of its own.

    In a frame of several rows Polars divides floats by a literal through its reciprocal, which rounds twice.
    """
    nodes = [node for expr in exprs.values() for node in syntax.walk(polars_json.read(expr))]
    names = {*map(syntax.operation, nodes)}
    floats = any(dtype.is_float() for dtype in frame.dtypes) or any(map(_is_float, nodes))
    divides = names & {"TrueDivide", "Sql.Div", "Eval"} or (floats and names & _QUOTIENTS_OF_FLOATS)
    if not divides or not len(frame):
        return frame.select("_row", **exprs)
    return pl.concat([frame[row : row + 1].select("_row", **exprs) for row in range(len(frame))])


def _is_float(node: Tree) -> bool:
    return node.dtype.is_float() if isinstance(node, Cast) else isinstance(node, Literal) and "Float" in node.dtype


def _named(plain: Iterable[pl.Expr], exprs: Mapping[str, Any]) -> dict[str, pl.Expr]:
    """The expressions of a ``select`` by the names of their results."""
    return {each.meta.output_name(): each for each in plain} | {name: _expression(e) for name, e in exprs.items()}


def _expression(value: Any) -> pl.Expr:
    """An expression as it is, a string as SQL, anything else as a literal; integer literals are int64."""
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, str):
        return pl.sql_expr(value)
    return pl.lit(value, dtype=pl.Int64) if isinstance(value, int) and not isinstance(value, bool) else pl.lit(value)


# Decimals -----------------------------------------------------------------------------------------------------------

_QUOTIENTS_OF_FLOATS = {"FloorDivide", "TruncDivide", "Modulus", "Sql.IntDiv", "Sql.Rem"}
_QUOTIENTS = {"TrueDivide", "FloorDivide", "TruncDivide", "Modulus", "Pow", "Div", "IntDiv", "Rem"}
_SIGNS_OF_SQL = {
    "Mul": "Multiply", "Plus": "Plus", "Minus": "Minus", "Eq": "Eq", "EqMissing": "EqValidity",
    "Lt": "Lt", "LtEq": "LtEq", "Gt": "Gt", "GtEq": "GtEq",
}  # fmt: skip
_OF_ONE_SCALE = {
    *_SIGNS_OF_SQL.values(), "NotEq", "NotEqValidity", "IsBetween", "IsIn", "SumHorizontal", "MaxHorizontal",
    "MinHorizontal", "Clip", "FillNull", "Coalesce", "Choice", "ListExpr", "Replace", "ReplaceStrict",
}  # fmt: skip


def _in_full(expr: pl.Expr, frame: pl.DataFrame) -> pl.Expr:
    """The expression with every digit of its decimals, where Polars by itself rounds to a scale of one operand.

    ``frame`` has the columns and no rows. A product has the sum of the scales, everything else the largest of them.
    """
    tree = polars_json.read(expr)
    if "decimal" not in f"{syntax.text(tree)}{frame.schema}".lower():
        return expr
    return polars_json.build(syntax.fold(tree, lambda node, parts: _written_out(node, parts, frame)))


def _written_out(node: Tree, parts: list[Tree], frame: pl.DataFrame) -> Tree:
    """An operation whose parts are written out already."""
    family, _, name = syntax.operation(node).rpartition(".")
    names = {family, _SIGNS_OF_SQL.get(name, name) if family == "Sql" else name}
    if not names & (_OF_ONE_SCALE | _QUOTIENTS):
        return syntax.with_children(node, parts)
    first = 1 if isinstance(node, Choice) else 0  # the predicate
    operands = _operands(names, parts[first:], frame)
    if family == "Sql" and names & {*_SIGNS_OF_SQL.values()} and operands != parts and not names & _QUOTIENTS:
        return syntax.call(_SIGNS_OF_SQL[name], *operands)
    return syntax.with_children(node, parts[:first] + operands)


def _operands(names: set[str], operands: list[Tree], frame: pl.DataFrame) -> list[Tree]:
    """Decimals, and the numbers beside them, at one scale; those of a quotient in floating point."""
    dtypes = [_value_type(each, frame) for each in operands]
    columns = [dtype.is_float() and not isinstance(each, Literal) for each, dtype in zip(operands, dtypes, strict=True)]
    if any(columns) or not any(isinstance(dtype, pl.Decimal) for dtype in dtypes):
        return operands
    if names & _QUOTIENTS:
        return [Cast(each, pl.Float64()) for each in operands]
    operands = [_as_decimal(each) if d.is_float() else each for each, d in zip(operands, dtypes, strict=True)]
    dtypes = [_value_type(each, frame) for each in operands]
    scales = [dtype.scale if isinstance(dtype, pl.Decimal) else 0 for dtype in dtypes]
    kind = pl.Decimal(38, sum(scales) if "Multiply" in names else max(scales))
    for place, (each, dtype) in enumerate(zip(operands, dtypes, strict=True)):
        if (dtype.is_integer() or dtype.is_decimal()) and not ("ReplaceStrict" in names and place > 1):
            nested = _type_of(each, frame) == pl.List
            operands[place] = Cast(each, pl.List(kind) if nested else kind)
    return operands


def _type_of(node: Tree, frame: pl.DataFrame) -> pl.DataType:
    return frame.select(polars_json.build(node)).dtypes[0]


def _value_type(node: Tree, frame: pl.DataFrame) -> pl.DataType:
    """The type of a value, or of the elements of a list."""
    dtype = _type_of(node, frame)
    return _instance(dtype.inner) if isinstance(dtype, pl.List) else dtype


def _as_decimal(literal: Tree) -> Tree:
    """A float literal as the decimal that it is written as, if it has at most 19 digits on each side of the point."""
    value = Decimal(repr(pl.select(polars_json.build(literal)).item()))
    if not value.is_finite():
        return literal
    scale = max(-int(value.as_tuple().exponent), 0)
    if scale > 19 or abs(value) >= 10**19:
        return literal
    return Literal("Decimal", (int(value.scaleb(scale)), 38, scale))


def _cast(frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in columns.items())


def _exactly(frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """What a function returned, as the declared types. A value that another type would not hold exactly is an error."""
    for name, dtype in columns.items():
        series = frame[name]
        if isinstance(dtype, pl.List | pl.Struct):
            _exactly_inside(series, dtype)
            continue
        if isinstance(dtype, pl.Datetime) and isinstance(series.dtype, pl.Datetime):
            parts = {"ms": Fraction(1000), "us": Fraction(1), "ns": Fraction(1, 1000)}[series.dtype.time_unit]
            exact = all(
                unit is None or ((unit * parts).denominator == 1 and abs(unit * parts) < 2**63)
                for unit in series.to_physical()
            )
        elif isinstance(dtype, pl.Datetime | pl.Date | pl.String | pl.Binary | pl.Boolean):
            alike = dtype == pl.String and isinstance(series.dtype, pl.Categorical | pl.Enum)
            exact = alike or series.dtype in (dtype, pl.Null())
        else:
            exact = all(value is None or _is_exactly(value, dtype, name) for value in series)
        if not exact:
            raise ExpressionError(f"the function returned a column {name} that {dtype} does not hold exactly")
    return _cast(frame, columns)


def _exactly_inside(series: pl.Series, dtype: pl.List | pl.Struct) -> None:
    """Raise ExpressionError where something inside a list or struct is not exactly of the declared type."""
    if series.dtype == pl.Null():
        return
    if type(series.dtype) is not type(dtype):
        raise ExpressionError(f"the function returned a column {series.name} that is no {dtype}")
    if isinstance(dtype, pl.List):
        values = [each for of_row in series.to_list() for each in of_row or []]
        _exactly(pl.DataFrame({"": pl.Series(values, dtype=_inner(series.dtype), strict=False)}), {"": _inner(dtype)})
        return
    fields = {field.name: _instance(field.dtype) for field in dtype.fields}
    if {*series.struct.fields} != fields.keys():
        raise ExpressionError(f"the function returned a column {series.name} with other fields than {dtype}")
    _exactly(series.struct.unnest(), fields)


def _is_exactly(value: Any, dtype: pl.DataType, name: str) -> bool:
    """Whether a number type holds exactly this value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return False
    if dtype == pl.Float64:
        return isinstance(value, float) or (isinstance(value, int) and Fraction(float(value)) == value)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(dtype, pl.Decimal):
        unscaled = Fraction(value) * 10**dtype.scale
        return not isinstance(value, float) and unscaled.denominator == 1 and abs(unscaled) < 10**dtype.precision
    least = -(2**63) if name == "count" else -(2**63) + 1
    return Fraction(value).denominator == 1 and least <= value < 2**63


def _columns(schema: Mapping[str, Any]) -> Columns:
    """Names to Polars types, from names to our names of types (or to Polars types)."""
    return {name: _dtype(each) for name, each in schema.items()}


def _dtype(name: Any) -> pl.DataType:
    if isinstance(name, pl.DataType):
        return _widened(name)
    if str(name).startswith("list["):
        return pl.List(_dtype(str(name)[5:-1]))
    if str(name).startswith("struct["):
        fields = (each.split(":", 1) for each in _outermost(str(name)[7:-1]))
        return pl.Struct({field.strip(): _dtype(kind.strip()) for field, kind in fields})
    decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", str(name))
    if decimal:
        return pl.Decimal(int(decimal[1]), int(decimal[2]))
    types: Columns = {
        "int64": pl.Int64(),
        "float64": pl.Float64(),
        "bool": pl.Boolean(),
        "string": pl.String(),
        "binary": pl.Binary(),
        "date": pl.Date(),
        "timestamp": pl.Datetime("us", "UTC"),
    }
    return types[str(name)]


def _type_name(dtype: Any) -> str:
    """The name that ``dd.toml`` has for a column's type."""
    if isinstance(dtype, pl.List):
        return f"list[{_type_name(_inner(dtype))}]"
    if isinstance(dtype, pl.Struct):
        return f"struct[{', '.join(f'{each.name}: {_type_name(_instance(each.dtype))}' for each in dtype.fields)}]"
    if isinstance(dtype, pl.Decimal):
        return f"decimal({dtype.precision},{dtype.scale})"
    if isinstance(dtype, pl.List):
        return f"list[{_type_name(dtype.inner)}]"
    if isinstance(dtype, pl.Struct):
        return f"struct[{', '.join(f'{each.name}: {_type_name(each.dtype)}' for each in dtype.fields)}]"
    names = {"Int64": "int64", "Float64": "float64", "Boolean": "bool", "Datetime": "timestamp"}
    kind = str(dtype.base_type())
    return names.get(kind, kind.lower())


def _outermost(text: str) -> list[str]:
    """The parts of a text between commas that no brackets enclose."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _instance(dtype: Any) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def _widened(dtype: pl.DataType) -> pl.DataType:
    """The type a column of ``dtype`` has here: one width of each kind."""
    if dtype.is_integer():
        return pl.Int64()
    if dtype.is_float():
        return pl.Float64()
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("us", "UTC")
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(min(dtype.precision, 18), dtype.scale)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _widened(_instance(field.dtype)) for field in dtype.fields})
    return pl.List(_inner(dtype)) if isinstance(dtype, pl.List) else dtype


def _inner(dtype: pl.DataType) -> pl.DataType:
    """The type of the elements of a list."""
    assert isinstance(dtype, pl.List), f"{dtype} is no list"
    return _widened(_instance(dtype.inner))
