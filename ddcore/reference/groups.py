"""Groups: the operators on a collection's rows by their values in some columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Generic

import polars as pl

from ddcore.reference.aggregates import MEANINGS, Meaning, is_absent
from ddcore.reference.expressions import expression_of, names_of
from ddcore.reference.gathered import DEFINITIONS, Definition
from ddcore.reference.multiset import C, Multiset, with_loops_of_arguments
from ddcore.reference.records import recorders
from ddcore.reference.rows import Row, order_of, python_value, require_int64, require_no_negative, rows_of
from ddcore.reference.types import as_declared, columns_of
from ddcore.reference.windows import Partition, arguments_of, in_order, result_of, type_of


@with_loops_of_arguments
class NaiveGroups(Generic[C]):
    """A collection and the key columns it is grouped by."""

    def __init__(self, collection: C, keys: list[str]) -> None:
        self.collection, self.keys = collection, keys

    def agg(self, *, allow_negative: bool = False, **aggregates: Any) -> C:
        """One row for each group with rows: its key and its aggregates.

        The input is the values of the aggregates' arguments, with their counts; an argument is null in rows for which
        the condition of the aggregate is not true. A negative count is an error; with ``allow_negative`` it is used as
        it is, and what has no positive count is no value for those aggregates that look for values.
        """
        arguments = self._arguments(aggregates)
        recorders[-1].keep(arguments.rows)
        meanings = {name: _meaning(aggregate) for name, aggregate in aggregates.items()}
        columns = {name: arguments.columns[name] for name in self.keys}
        for name, meaning in meanings.items():
            columns[name] = meaning.dtype(arguments.columns[f"{name} of"])

        rows = []
        for key, members in _by_key(arguments, len(self.keys)).items():
            if not allow_negative:
                require_no_negative("agg", key, members)
            if is_absent([meaning.linear for meaning in meanings.values()], [count for _, count in members]):
                continue
            results = []
            for number, (name, meaning) in enumerate(meanings.items()):
                values = [(row[number], count) for row, count in members if row[number] is not None]
                if isinstance(meaning, Definition):
                    results.append(meaning.value(values, aggregates[name].options))
                else:
                    results.append(meaning.value(values, columns[name]))
            rows.append(((*key, *results), 1))
        return self.collection.of(columns, rows)

    def _arguments(self, aggregates: Mapping[str, Any]) -> C:
        """The keys, and for each aggregate its argument: true for a count; null where its condition is not true."""
        everything = self.collection
        columns, pick = {name: everything.columns[name] for name in self.keys}, everything.picker(self.keys)
        rows = [pick(row) for row in everything.rows]
        for name, aggregate in aggregates.items():
            condition = pl.lit(True) if aggregate.where is None else expression_of(aggregate.where)
            counted = everything.where(condition)
            types, values = counted.map(
                {"it": pl.lit(True) if aggregate.expr is None else expression_of(aggregate.expr)}
            )
            arguments = dict(zip(counted.rows, values, strict=True))
            columns[f"{name} of"] = types["it"]
            rows = [(*row, *arguments.get(own, (None,))) for row, own in zip(rows, everything.rows, strict=True)]
        return self.collection.of(columns, zip(rows, everything.rows.values(), strict=True))

    def top_k(self, k: int, by: Any, descending: Any = False, ties: str = "cut", allow_negative: bool = False) -> C:
        """The first k rows of each group in the order of the columns ``by``, nulls last, then of the other columns.

        Each row counts with its multiplicity. With ``ties`` rank: every row with fewer than k rows before it in
        the order of ``by`` alone.
        """
        recorders[-1].keep(self.collection.rows)
        names = names_of(by)
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
                elif order_of(x) != order_of(y):
                    return (order_of(x) > order_of(y)) if down else (order_of(x) < order_of(y))
            return False

        rows = []
        for key, members in _by_key(source, len(self.keys)).items():
            if not allow_negative:
                require_no_negative("top_k", key, members)
            present = [(row, count) for row, count in members if count > 0]
            for row, count in present:
                ahead = sum(
                    n for other, n in present if before(other, row, order if ties == "cut" else order[: len(names)])
                )
                number = count if ties == "rank" and ahead < k else max(0, min(count, k - ahead))
                rows.append(((*key, *row), number))
        return self.collection.of(source.columns, rows)

    def over(
        self,
        by: Any = (),
        descending: Any = False,
        nulls_first: Any = False,
        allow_negative: bool = False,
        **functions: Any,
    ) -> C:
        """Each copy of a row with the results of the functions, in its group, in an order.

        The order is that of the columns ``by``, then that of the other columns, ascending, nulls last.
        """
        recorders[-1].keep(self.collection.rows)
        names = names_of(by)
        downs = [descending] * len(names) if isinstance(descending, bool) else list(descending)
        firsts = [nulls_first] * len(names) if isinstance(nulls_first, bool) else list(nulls_first)
        rest = [*names, *(name for name in self.collection.columns if name not in (*self.keys, *names))]
        source = self.collection.select(*self.keys, *rest)
        order = [(rest.index(name), down, first) for name, down, first in zip(names, downs, firsts, strict=True)]
        ties = [(position, False, False) for position, name in enumerate(rest) if name not in names]
        types, arguments = arguments_of(source, functions)
        columns = source.columns | {name: type_of(function, types[name]) for name, function in functions.items()}
        by_row = dict(zip(source.rows, arguments, strict=True))

        rows = []
        for key, members in _by_key(source, len(self.keys)).items():
            if not allow_negative:
                require_no_negative("over", key, members)
            copies = [row for row, count in members for _ in range(count)]
            partition = Partition(in_order(copies, [*order, *ties]), order)
            for position, row in enumerate(partition.rows):
                results = [
                    result_of(function, partition, position, [by_row[*key, *other][name] for other in partition.rows],
                              columns[name])
                    for name, function in functions.items()
                ]  # fmt: skip
                rows.append(((*key, *row, *results), 1))
        return self.collection.of(columns, rows)

    def reduce(
        self, function: Callable[[pl.DataFrame], pl.DataFrame], schema: Mapping[str, Any], allow_negative: bool = False
    ) -> C:
        """The result of ``function`` for each group's rows and counts, beside the group's key.

        ``function`` gets all groups at once: ``group`` (a number, not the key), the columns that are not keys and
        ``count``. It returns ``group``, the columns of ``schema`` and optionally ``count``. Rows whose count is
        negative are an error, or with ``allow_negative`` included like any other.
        """
        recorders[-1].keep(self.collection.rows)
        source, columns = self.collection, columns_of(schema)
        rest = {name: dtype for name, dtype in source.columns.items() if name not in self.keys}
        groups = _by_key(source.select(*self.keys, *rest), len(self.keys))
        group_rows = []
        for number, (key, members) in enumerate(groups.items()):
            if not allow_negative:
                require_no_negative("reduce", key, members)
            rows = [(map(python_value, row, rest.values()), count) for row, count in members]
            group_rows += [(number, *row, require_int64(count)) for row, count in rows]
        frame = pl.DataFrame(group_rows, schema={"group": pl.Int64, **rest, "count": pl.Int64}, orient="row")
        returned = function(frame.sort("group", *rest))
        if "count" not in returned.columns:
            returned = returned.with_columns(count=pl.lit(1))
        keys, whole = list(groups), {"group": pl.Int64(), "count": pl.Int64()}
        result_rows = [
            ((*keys[number], *row), count)
            for number, count, *row in rows_of(as_declared(returned.select(*whole, *columns), whole | columns))
        ]
        result = self.collection.of({name: source.columns[name] for name in self.keys} | columns, result_rows)
        recorders[-1].keep(result.rows)
        return result


def _meaning(aggregate: Any) -> Meaning | Definition:
    return DEFINITIONS[aggregate.kind] if aggregate.fields else MEANINGS[aggregate.kind]


def _by_key(collection: Multiset, width: int) -> dict[Row, list[tuple[Row, int]]]:
    """For each value of the first ``width`` columns, the rest of the rows with their counts."""
    groups: defaultdict[Row, list[tuple[Row, int]]] = defaultdict(list)
    for row, count in collection.rows.items():
        groups[row[:width]].append((row[width:], count))
    return groups
