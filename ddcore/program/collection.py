"""What a program is written in: symbolic collections and their operators.

Calling an operator checks schemas and adds a node to the dataflow; no row is touched. The checks are in the operator's
file in ``operators/``; here are the names that programs use, and their documentation. A collection of an outer scope
may be used inside a loop as it is (sources: McSherry 2012, Extend). Operators do not consolidate: rows that
become equal in a select add up, as multisets do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddcore.base.symbol import Symbol
from ddcore.operators import arguments
from ddcore.operators.agg import Agg
from ddcore.operators.aggregates import Aggregate
from ddcore.operators.aggregation import Needed
from ddcore.operators.calling import Frames
from ddcore.operators.ends import Closed, Ends
from ddcore.operators.order import Order
from ddcore.operators.reduce import Reduce
from ddcore.operators.row_hash import MOST_BITS
from ddcore.operators.select import Select
from ddcore.operators.top_k import Ties, TopK
from ddcore.operators.window_arguments import WindowArguments
from ddcore.operators.window_functions import WindowFunction
from ddcore.program import asof_join, joins, loops, sets, time_windows, wide_sums
from ddcore.program.asof_join import Direction, Nearest, Outer
from ddcore.program.gathered import gathered
from ddcore.program.joins import How
from ddcore.program.linear import LinearCollection
from ddcore.program.loops import DEFAULT_MAX_ROUNDS, AtLimit
from ddcore.program.numbering import MOST_TRIES, Numbering, identified
from ddcore.program.windows import Windows


class Collection(LinearCollection):
    """A multiset of rows that varies with time. Made by the program's parameters and by operators, never directly."""

    # -- operators with state, keyed ----------------------------------------------------------------------------------

    def union(self, other: Collection, *, allow_negative: bool = False) -> Collection:
        """Each row as often as on the side that has more of it (sources: McSherry 2012, Union).

        Columns as for :meth:`concat`; ``allow_negative`` as for :meth:`distinct`. Cost: linear in the rows that change
        on either side. Raises ProgramError where the columns differ.
        """
        return sets.combine("union", self, other, allow_negative)

    def intersect(self, other: Collection, *, allow_negative: bool = False) -> Collection:
        """Each row as often as on the side that has fewer of it (sources: McSherry 2012, Intersect); else as
        :meth:`union`.
        """
        return sets.combine("intersect", self, other, allow_negative)

    def except_(self, other: Collection, *, allow_negative: bool = False) -> Collection:
        """Each row as often as it is here more often than there, never below zero (sources: McSherry 2012, Except).

        ``concat(other.negate())`` is the difference that may be negative. Otherwise as :meth:`union`.
        """
        return sets.combine("except_", self, other, allow_negative)

    def join(self, other: Collection, on: str | Sequence[str] | Mapping[str, str], how: How = "inner") -> Collection:
        """Pairs of rows with equal keys; multiplicities multiply, nulls match nothing (sources: McSherry 2012, Join).

        ``on``: a column, columns, or ``{left: right}``. The right key is dropped; a right column whose name is taken
        gets the suffix ``_right``. Where several left columns meet one right column, they must all be equal to it.
        ``how``: "inner"; "semi" or "anti", the rows with or without a partner; "left", "right" or "full", with the rows
        that have none on one side or on both, nulls in place of the partner.
        Cost: proportional to the pairs that change; semi, anti and outer joins also look at the keys that change.
        Raises ProgramError for keys that are no columns or of different types, and for another ``how``.
        """
        return joins.join(self, other, on, how)

    def join_between(
        self,
        intervals: Collection,
        column: str,
        lower: str | None = None,
        upper: str | None = None,
        *,
        on: str | Sequence[str] | Mapping[str, str] = (),
        closed: Closed = "both",
        open_nulls: bool = False,
    ) -> Collection:
        """Pairs of a row and an interval that its value in ``column`` lies in; multiplicities multiply.

        ``lower`` and ``upper`` are columns of ``intervals``; without one of them, intervals have no end on that side.
        ``closed``: which ends belong to an interval, as in Polars: "both", "left", "right" or "none". An interval with
        a null end holds nothing, or with ``open_nulls`` has no end there; no interval holds null.
        ``on``: keys that must be equal, too, as in :meth:`join`. The result has the columns of the rows, then those of
        the intervals without keys and ends, with the suffix ``_right`` where a name is taken.
        Cost: proportional to the pairs that change and the intervals that change, with a search for each: a row between
        the old and the new end of an interval is looked at, others are not.
        """
        return joins.join_between(self, intervals, column, Ends.of(lower, upper, closed, open_nulls), on)

    def join_asof(
        self,
        other: Collection,
        column: str,
        other_column: str | None = None,
        *,
        on: str | Sequence[str] | Mapping[str, str] = (),
        direction: Direction = "backward",
        exact: bool = True,
        how: Outer = "inner",
        allow_negative: bool = False,
    ) -> Collection:
        """Each row with the nearest of ``other``: of those with equal keys, that of the greatest ``other_column`` not
        above the row's value in ``column``, or with ``direction="forward"`` of the least not below it.

        ``other_column`` is ``column`` if it is not given. ``on``: keys that must be equal, as in :meth:`join`.
        ``exact``: a row with the same value counts, too. Of several rows with the same key and value, or copies of one,
        it is the one whose other columns are least, once. ``how="left"``: rows without a partner stay, with nulls.
        The result has the columns of the rows, then those of ``other`` without keys, with the suffix ``_right`` where a
        name is taken. Nulls match nothing. Cost: a row of ``other`` that comes or goes costs the rows between it and
        the next one, with a search for them.
        """
        nearest = Nearest.of(direction, exact)
        columns = column, other_column
        return asof_join.join_asof(self, other, columns, on, nearest, how=how, allow_negative=allow_negative)

    def group_by(self, *keys: Any) -> GroupBy:
        """Groups of rows with equal keys (nulls group together); no keys: one group of everything.

        ``keys``: column names, or selectors as in :meth:`select`. Raises ProgramError for what is no column.
        """
        return GroupBy(self, tuple(arguments.column_names(self.schema, "group_by", keys)))

    def arrange_by(self, *keys: Any) -> Collection:
        """This collection, with its contents unchanged. It says to a reader of the program that ``keys`` are a key by
        which rows are looked up: operators build that arrangement themselves, and share equal ones.

        Raises ProgramError for what is no column.
        """
        arguments.column_names(self.schema, "arrange_by", keys)
        return self

    # -- windows of time ----------------------------------------------------------------------------------------------

    def tumble(
        self, column: str, every: Any, *, offset: Any = None, start: str = "window_start", end: str = "window_end"
    ) -> Collection:
        """Each row with the window of time that its moment in ``column`` is in, from ``start`` to before ``end``.

        Windows are ``every`` long, one after the other; one of them begins at ``offset`` from 1970, or from 0: a
        timedelta for timestamps and dates, else a whole number. A row whose moment is null is left out.
        Cost: linear in the rows that change. Raises ProgramError for a column that is no timestamp, date or int64, for
        lengths of another kind or not above 0, and for names of columns that are there.
        """
        windows: Collection = time_windows.hopping(
            self, "tumble", column, every, None, offset=offset, start=start, end=end
        )
        return windows

    def hop(
        self, column: str, every: Any, length: Any, *, offset: Any = None, start: str = "window_start",
        end: str = "window_end",
    ) -> Collection:  # fmt: skip
        """Each row once for every window of time that its moment in ``column`` is in, from ``start`` to before ``end``.

        A window begins ``every`` so often, and is ``length`` long; otherwise like :meth:`tumble`. A row is in 1000
        windows at most, and costs as many as it is in.
        """
        windows: Collection = time_windows.hopping(
            self, "hop", column, every, length, offset=offset, start=start, end=end
        )
        return windows

    def sessions(
        self, column: str, gap: Any, by: str | Sequence[str] = (), *, start: str = "window_start",
        end: str = "window_end",
    ) -> Collection:  # fmt: skip
        """Each row with its session: rows with equal ``by``, each of which comes ``gap`` after the last or sooner.

        ``start`` is the first moment of the session, ``end`` its last moment plus ``gap``. Sessions merge and split as
        rows come and go. In ``by`` null is a value like any other; a row whose moment is null is left out.
        Cost: proportional to the moments that change, with a search for those beside them, and to the rows of the
        sessions of which an end moves; new rows look at the sessions of their keys, as in :meth:`join_between`.
        """
        windows: Collection = time_windows.sessions(self, column, gap, by, start=start, end=end)
        return windows

    # -- ids of rows --------------------------------------------------------------------------------------------------

    def intern(
        self, id: str = "id", *, bits: int = MOST_BITS, hash: Any = None, max_rounds: int = MOST_TRIES
    ) -> Collection:
        """One of each distinct row, and its id, a whole number that no other row has then (sources: McSherry 2018).

        Ids are in the last column, called ``id``, and below ``2**bits``. A row's id is the specified hash of its values
        at round 0. Of rows with equal hashes the least keeps it and the others get their hash at the next round, so ids
        of rows that collide may change when others come or go.
        ``hash`` is another hash function: an integer expression of the columns and of ``round``.

        Cost: linear in the changes, and in each round in the rows that collide. Raises ProgramError; a run raises
        NegativeMultiplicity, and Diverged where some row finds no id in ``max_rounds`` rounds.
        """
        return identified(self, Numbering(id, bits, hash, max_rounds), "intern", once=True)

    def with_row_id(
        self, id: str = "row_id", *, bits: int = MOST_BITS, hash: Any = None, max_rounds: int = MOST_TRIES
    ) -> Collection:
        """The rows, as often as they occur, with the ids of :meth:`intern` as the last column. Equal rows share one.

        Parameters, cost and errors are those of :meth:`intern`.
        """
        return identified(self, Numbering(id, bits, hash, max_rounds), "with_row_id", once=False)

    def attributes(
        self, *columns: Any, id: str = "row_id", bits: int = MOST_BITS, hash: Any = None, max_rounds: int = MOST_TRIES
    ) -> dict[str, Collection]:
        """The distinct rows taken apart: for each of ``columns`` (default: all) a collection of row ids and values.

        Each has the columns ``id`` and its own. Ids are those of :meth:`intern`, and so are cost and errors.
        :func:`ddcore.rows` joins any of them again.
        """
        names = arguments.column_names(self.schema, "attributes", columns) or self.columns
        interned = identified(self, Numbering(id, bits, hash, max_rounds), "attributes", once=True)
        return {name: interned.select(id, name) for name in names}

    def inspect(self, name: str) -> Collection:
        """Keeps the differences of this collection in an output log called ``name``; returns this collection.

        Inside of loops a difference has a time of version and rounds. The log has the rounds as columns: ``round``, for
        the loop in it ``round_2``, and so on, and for a loop with priorities also ``priority``. So, accumulated at a
        version, the log holds the differences between the rounds at that version. The collection is computed
        even if no output needs it. Raises ProgramError if the name or a column is taken.
        """
        self._graph.inspect(name, self._index)
        return self

    # -- loops --------------------------------------------------------------------------------------------------------

    def iterate(
        self,
        body: Callable[[Collection], Collection],
        *,
        priority: Any = None,
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        at_limit: AtLimit = "fail",
    ) -> Collection:
        """``body`` applied again and again, starting with this collection, until nothing changes.

        It is Fixed Point (sources: McSherry 2012). All rows of a round advance together. Bodies may hold further
        loops. The body must return the columns it is given. A loop that still changes after ``max_rounds`` rounds
        stops the run with a Diverged error, or with ``at_limit="return"`` gives what the body returned last.

        ``priority``: an integer expression of this collection's rows. Rows with the least enter first, the others one
        priority after the other when the loop has settled, for rows of which late ones are mostly superseded.
        Meant for bodies that only add to what they are given or improve on it: their fixed point is the same in
        any order. ``max_rounds`` then holds for each priority.

        Cost: that of the body on what changes in each round. Raises ProgramError.
        """
        return loops.fixed_point(self, body, priority, max_rounds, at_limit)

    @staticmethod
    def fixed_points(
        collections: Mapping[str, Collection],
        body: Callable[..., Mapping[str, Collection]],
        priority: Mapping[str, Any],
        max_rounds: int,
        at_limit: AtLimit,
    ) -> dict[str, Collection]:
        """Mutual recursion: what :func:`ddcore.iterate` calls in the class of its collections."""
        return loops.fixed_points(collections, body, priority, max_rounds, at_limit)

    # -- several collections at once ----------------------------------------------------------------------------------

    @staticmethod
    def delta_join(*relations: tuple[Collection, Sequence[str]]) -> Collection:
        """A join of several: what :func:`ddcore.delta_join` calls in the class of its collections."""
        return joins.delta_joined(*relations)


class GroupBy(Symbol):
    """The groups of a collection by some of its columns; each method computes rows from each group."""

    _called = "the result of group_by()"

    def __init__(self, collection: Collection, keys: tuple[str, ...]) -> None:
        self._collection, self._keys = collection, keys

    def agg(self, *unnamed: Any, allow_negative: bool = False, **aggregates: Aggregate) -> Collection:
        """One row per group: the keys and the named aggregates. A group without rows is absent, never 0.

        Cost: for sums, counts and means linear in the rows that change; a least or a greatest value that goes costs the
        rows of its group, in a large one those of a part; the functions of other aggregates say theirs. Raises
        ProgramError for what is no aggregate, and for names of keys.
        """
        base = self._collection
        if any(isinstance(aggregate, Aggregate) and aggregate.fields for aggregate in aggregates.values()):
            rows: Collection = gathered(base, self._keys, unnamed, aggregates, allow_negative=allow_negative)
            return rows
        needed = Needed.of(base.schema, self._keys, unnamed, aggregates)
        prepared = base._add(Select.of(base.schema, needed.exprs, "agg"))
        summed: Collection = wide_sums.aggregated(
            prepared,
            needed.aggregates,
            lambda result: result,
            lambda result, name, argument: (name, "sum", argument),
            lambda rows, results: rows._add(Agg.of(rows.schema, self._keys, results, allow_negative)),
        )
        return summed

    def top_k(
        self,
        k: int,
        by: str | Sequence[str],
        *,
        descending: bool | Sequence[bool] = False,
        ties: Ties = "cut",
        allow_negative: bool = False,
    ) -> Collection:
        """The first ``k`` rows of each group, ordered by the columns ``by``, nulls last.

        ``ties="cut"``: k rows at most, of equal ones those whose other columns are least. ``ties="rank"``: every row
        before which fewer than k others come. Rows count as often as they are there. Raises ProgramError.
        """
        base = self._collection
        operator = TopK.of(
            base.schema, self._keys, k=k, by=by, descending=descending, ties=ties, allow_negative=allow_negative
        )
        return base._add(operator)

    def reduce(self, function: Frames, schema: Mapping[str, Any], *, allow_negative: bool = False) -> Collection:
        """Any pure function of the rows of each group and their counts (sources: McSherry 2015, group).

        ``function`` gets a frame of many groups: ``group`` (int64, which group), the columns that are not keys,
        ``count``. It returns ``group``, the columns of ``schema`` and, if it wants, ``count``. It must give equal
        results for equal groups. The function is not called for empty groups.
        """
        base = self._collection
        return base._add(Reduce.of(base.schema, self._keys, function, schema, allow_negative))

    def over(
        self,
        by: str | Sequence[str] = (),
        *,
        descending: bool | Sequence[bool] = False,
        nulls_first: bool | Sequence[bool] = False,
        allow_negative: bool = False,
        **functions: Aggregate | WindowFunction,
    ) -> Collection:
        """Each row with columns that look at the rows of its group around it, in the order of the columns ``by``.

        Functions are aggregates, of the row's frame, and window functions such as :func:`ddcore.lag`. Without a frame
        of its own, one looks at all rows up to the current one and those equal to it in the order, without ``by`` at
        the whole group. Rows that are equal in ``by`` stand in the order of the other columns, ascending, nulls last.
        Each copy of a row has its own place. Raises ProgramError.
        """
        base = self._collection
        order = Order.of(base.schema, self._keys, by, descending, nulls_first, where="over")
        needed = WindowArguments.of(base.schema, self._keys, order, functions)
        prepared = base._add(Select.of(base.schema, needed.exprs, "over"))
        columns = (*order.by, *(name for name in base.columns if name not in order.by))
        windows = Windows(tuple(self._keys), columns, order, allow_negative)
        summed: Collection = wide_sums.aggregated(
            prepared,
            needed.windows,
            lambda window: (window.name, window.kind, window.argument),
            lambda window, name, argument: replace(window, name=name, kind="sum", argument=argument),
            windows.of,
        )
        return summed
