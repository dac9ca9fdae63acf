"""Collections and their operators, each by its definition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from ddcore.reference.expressions import names_of
from ddcore.reference.groups import NaiveGroups
from ddcore.reference.ids import ids_of
from ddcore.reference.loops import by_priority, fixed_points
from ddcore.reference.multiset import Multiset, in_loops, with_loops_of_arguments
from ddcore.reference.records import recorders
from ddcore.reference.rows import (
    Row,
    Rows,
    lies_in,
    order_of,
    require_no_negative,
)
from ddcore.reference.time_windows import sessions_of, windows_around
from ddcore.reference.types import Columns


@with_loops_of_arguments
class NaiveCollection(Multiset):
    """A multiset of rows, with the operators of ``ddcore.Collection``."""

    def join(self, other: NaiveCollection, on: Any, how: str = "inner") -> NaiveCollection:
        """Each pair of rows that agree on the key, as often as the product of their counts.

        A null in a key agrees with nothing. Columns: all of the left, then the right's without its key; one whose name
        the left has too gets ``_right``. Other values of ``how`` choose among the pairs and the rows that are in none:
        semi and anti give left rows by whether they are in a pair, left, right and full add to the pairs the rows that
        are in none, from the named side or both, with nulls for the other side and the key of their own.
        """
        pairs, rest, named = self._sides(other, on)
        left_key, right_key, right_rest = self.picker(pairs), other.picker(pairs.values()), other.picker(rest)
        recorders[-1].keep(self.rows)
        recorders[-1].keep(other.rows)
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
        pairs, rest, named = self._sides(intervals, on, lower, upper)
        left_key, right_key, right_rest = (
            self.picker(pairs), intervals.picker(pairs.values()), intervals.picker(rest)
        )  # fmt: skip
        value = self.picker([column])
        begin, end = (intervals.picker([] if name is None else [name]) for name in (lower, upper))
        recorders[-1].keep(self.rows)
        recorders[-1].keep(intervals.rows)
        rows = [
            (row + right_rest(interval), count * other)
            for row, count in self.rows.items()
            for interval, other in intervals.rows.items()
            if left_key(row) == right_key(interval)
            and None not in left_key(row)
            and lies_in(value(row)[0], begin(interval), end(interval), closed, open_nulls)
        ]
        return NaiveCollection(self.columns | named, rows)

    def join_asof(
        self,
        other: NaiveCollection,
        column: str,
        other_column: str | None = None,
        *,
        on: Any = (),
        direction: str = "backward",
        exact: bool = True,
        how: str = "inner",
        allow_negative: bool = False,
    ) -> NaiveCollection:
        """Each row beside the one of ``other`` that agrees on the key and whose value is nearest, as often as the row.

        Nearest is the greatest that is not above the row's, forward the least that is not below it; unless ``exact``
        it is another one. Of several with this value it is the least by all columns. A null agrees with nothing and is
        near nothing. Columns: all of the row, then the other's without key; one whose name the row has too gets
        ``_right``. With ``left`` the rows without a partner are there, too, with nulls for the other side.
        """
        pairs, rest, named = self._sides(other, on)
        time = column if other_column is None else other_column
        left, right = self.picker([*pairs, column]), other.picker([*pairs.values(), time])
        known = other.of(other.columns, [(row, count) for row, count in other.rows.items() if None not in right(row)])
        first = known.group_by(*pairs.values(), time).top_k(1, (), allow_negative=allow_negative)
        right, right_rest = first.picker([*pairs.values(), time]), first.picker(rest)
        recorders[-1].keep(self.rows)
        rows: list[tuple[Row, int]] = []
        for row, count in self.rows.items():
            *key, value = left(row)
            near = [
                partner
                for partner in (first.rows if None not in (*key, value) else ())
                if [*right(partner)[:-1]] == key and _is_beside(value, right(partner)[-1], direction, exact)
            ]
            near.sort(key=lambda partner: order_of(right(partner)[-1]), reverse=direction == "backward")
            rows += [(row + right_rest(partner), count) for partner in near[:1]]
            rows += [(row + (None,) * len(rest), count)] * (how == "left" and not near)
        return NaiveCollection(self.columns | named, rows)

    def _sides(
        self, other: NaiveCollection, on: Any, *without: str | None
    ) -> tuple[dict[str, str], list[str], Columns]:
        """The keys of a join, left to right; the other's columns but its key and those ``without``; and these as the
        result calls them.
        """
        pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in names_of(on)}
        rest = [name for name in other.columns if name not in (*pairs.values(), *without)]
        return pairs, rest, {f"{name}_right" if name in self.columns else name: other.columns[name] for name in rest}

    @staticmethod
    def delta_join(*relations: tuple[NaiveCollection, Sequence[str]]) -> NaiveCollection:
        """Every choice of a row of each relation in which equal attributes have equal values, none of them null where
        two relations share it.
        """
        columns: Columns = {}
        partial: list[tuple[dict[str, Any], int]] = [({}, 1)]
        for collection, names in relations:
            recorders[-1].keep(collection.rows)
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
        others: Rows = Counter(dict(other.in_order_of(self)))
        recorders[-1].keep(self.rows)
        recorders[-1].keep(others)
        if not allow_negative:
            for side in (self.rows, others):
                for row, count in side.items():
                    require_no_negative(name, row, [(row, count)])
        rows = {row: counted(self.rows[row], others[row]) for row in {*self.rows, *others}}
        return NaiveCollection(self.columns, rows.items())

    def arrange_by(self, *keys: Any) -> NaiveCollection:
        """The collection itself: the name of an index changes nothing."""
        return self

    # Windows of time

    def tumble(
        self, column: str, every: Any, offset: Any = None, start: str = "window_start", end: str = "window_end"
    ) -> NaiveCollection:
        """Each row with the window that it is in."""
        return self.hop(column, every, every, offset, start, end)

    def hop(  # noqa: PLR0917  (the parameters of Collection.hop)
        self,
        column: str,
        every: Any,
        length: Any,
        offset: Any = None,
        start: str = "window_start",
        end: str = "window_end",
    ) -> NaiveCollection:
        """Each row with each window, of all that begin a multiple of ``every`` after the offset, that it is in."""
        value = self.picker([column])
        rows = [
            ((*row, *window), times)
            for row, times in self.rows.items()
            if value(row)[0] is not None
            for window in windows_around(value(row)[0], every, length, offset)
        ]
        return NaiveCollection(self.columns | dict.fromkeys((start, end), self.columns[column]), rows)

    def sessions(
        self, column: str, gap: Any, by: Any = (), start: str = "window_start", end: str = "window_end"
    ) -> NaiveCollection:
        """Each row with the session of its key that its moment is in; a moment counts where there are rows."""
        recorders[-1].keep(self.rows)
        value, key = self.picker([column]), self.picker(names_of(by) if by else [])
        counts: Counter[tuple[Row, Any]] = Counter()
        for row, times in self.rows.items():
            if value(row)[0] is not None:
                counts[key(row), value(row)[0]] += times
        known: defaultdict[Row, list[Any]] = defaultdict(list)
        for (group, moment), times in counts.items():
            require_no_negative("sessions", (*group, moment), [((*group, moment), times)])
            known[group] += [moment] * (times > 0)
        rows = [
            ((*row, first, last + gap), times)
            for row, times in self.rows.items()
            if value(row)[0] is not None
            for first, last in sessions_of(known[key(row)], gap)
            if first <= value(row)[0] <= last
        ]
        return NaiveCollection(self.columns | dict.fromkeys((start, end), self.columns[column]), rows)

    # Group by group

    def distinct(self, allow_negative: bool = False) -> NaiveCollection:
        """Each row whose count is positive, once."""
        recorders[-1].keep(self.rows)
        if not allow_negative:
            for row, count in self.rows.items():
                require_no_negative("distinct", row, [(row, count)])
        return NaiveCollection(self.columns, ((row, 1) for row, count in self.rows.items() if count > 0))

    def group_by(self, *keys: Any) -> NaiveGroups[NaiveCollection]:
        """The rows by their values in ``keys``; by no keys, all in one group. A null is a value like any other here."""
        return NaiveGroups(self, [key.meta.output_name() for key in self.spread(keys)])

    # Ids of rows

    def intern(self, id: str = "id", bits: int = 63, hash: Any = None, max_rounds: int = 1_000) -> NaiveCollection:
        """Each row that is there, once, with its id."""
        ids = ids_of(self, bits, hash, max_rounds)
        return self._with_ids(id, (((*row, number), 1) for row, number in ids.items()))

    def with_row_id(
        self, id: str = "row_id", bits: int = 63, hash: Any = None, max_rounds: int = 1_000
    ) -> NaiveCollection:
        """Each row with its id, as often as it occurs."""
        ids = ids_of(self, bits, hash, max_rounds)
        return self._with_ids(id, (((*row, number), self.rows[row]) for row, number in ids.items()))

    def attributes(
        self, *columns: Any, id: str = "row_id", bits: int = 63, hash: Any = None, max_rounds: int = 1_000
    ) -> dict[str, NaiveCollection]:
        """For each column the pairs of a row's id and its value."""
        names = [column.meta.output_name() for column in self.spread(columns)] or list(self.columns)
        interned = self.intern(id, bits, hash, max_rounds)
        return {name: interned.select(id, name) for name in names}

    def _with_ids(self, id: str, rows: Iterable[tuple[Row, int]]) -> NaiveCollection:
        """A collection with a column of ids: the result of a loop, and so in all loops around."""
        result = NaiveCollection(self.columns | {id: pl.Int64()}, rows)
        return in_loops(result, result.rows, len(recorders[-1].rounds))

    # Loops

    def inspect(self, name: str) -> NaiveCollection:
        """This collection; its differences from round to round are one more output."""
        recorders[-1].inspect(name, self.rows, self.loops)
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
        record = recorders[-1]
        if record.blind or not priority:
            results = fixed_points(collections, body, max_rounds, at_limit)
        else:
            record.blind, record.missed = True, False
            try:
                results = fixed_points(collections, body, max_rounds, at_limit)
            finally:
                record.blind = False
            if record.missed:
                by_priority(collections, body, priority, max_rounds)
        return {name: in_loops(result, result.rows, len(record.rounds)) for name, result in results.items()}


def _is_beside(value: Any, other: Any, direction: str, exact: bool) -> bool:
    """Whether a value is on the side of another that ``direction`` says, or equal to it if ``exact``."""
    first, second = (other, value) if direction == "backward" else (value, other)
    return lies_in(second, [first], [], "both" if exact else "none", False)
