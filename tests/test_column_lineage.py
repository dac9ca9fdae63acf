"""Where columns come from: a column that is not named for an output's column may change without changing that."""

from __future__ import annotations

from collections import Counter
from typing import Any

import folding
import polars as pl
import pytest
from programs import Case, case
from seeds import seeds

import ddcore as dd
from ddcore.base.errors import DdError
from ddcore.operators.intern import Contest
from ddcore.operators.over import Over
from ddcore.operators.top_k import TopK
from ddcore.planning.column_lineage import ColumnLineage, column_lineage
from ddcore.planning.plan import Plan
from ddcore.planning.planner import build

ORDERS = {"id": "int64", "customer": "int64", "status": "string", "price": "int64", "day": "date"}
CUSTOMERS = {"customer": "int64", "name": "string", "city": "string"}


def lineage_of(program: Any, **schemas: dict[str, str]) -> dict[str, ColumnLineage]:
    return column_lineage(build(program, schemas))


def words(lineage: dict[tuple[str, str], set[str]]) -> dict[str, str]:
    return {f"{name}.{column}": " ".join(sorted(how)) for (name, column), how in sorted(lineage.items())}


def test_expressions_filters_joins_and_groups() -> None:
    def program(orders: Any, customers: Any) -> dict[str, Any]:
        paid = orders.where("status = 'paid'").with_columns(gross=pl.col("price") * 2)
        return {"cities": paid.join(customers, on="customer").group_by("city").agg(s=dd.sum("gross"), n=dd.count())}

    cities = lineage_of(program, orders=ORDERS, customers=CUSTOMERS)["cities"]
    assert {name: words(sources) for name, sources in cities.columns.items() if name in ("city", "s", "n")} == {
        "city": {"customers.city": "IDENTITY"},
        "s": {"orders.price": "AGGREGATION"},
    }
    assert words(cities.rows) == {
        "customers.city": "GROUP_BY",
        "customers.customer": "JOIN",
        "orders.customer": "JOIN",
        "orders.status": "FILTER",
    }


def test_loops_windows_and_greatest_rows() -> None:
    def program(orders: Any) -> dict[str, Any]:
        start = orders.select(a="customer", b="id")
        reached = start.iterate(
            lambda pairs: pairs.join(start, on={"b": "a"}).select("a", b="b_right").concat(start).distinct()
        )
        before = orders.group_by("customer").over("day", before=dd.lag("price")).drop("status", "price")
        return {"reached": reached, "before": before, "first": orders.group_by("customer").top_k(1, "day")}

    found = lineage_of(program, orders=ORDERS)
    assert words(found["reached"].columns["b"]) == {"orders.id": "IDENTITY"}
    assert words(found["reached"].rows) == {"orders.customer": "GROUP_BY JOIN", "orders.id": "GROUP_BY JOIN"}
    assert words(found["before"].columns["before"]) == {
        "orders.customer": "WINDOW", "orders.day": "WINDOW", "orders.price": "TRANSFORMATION",
    }  # fmt: skip
    assert words(found["before"].columns["id"]) == {"orders.id": "IDENTITY"} and words(found["before"].rows) == {}
    assert words(found["first"].rows) == {"orders.customer": "GROUP_BY", "orders.day": "SORT"}


def test_a_function_hides_what_it_does() -> None:
    def program(orders: Any) -> dict[str, Any]:
        two = orders.select("id", "price")
        return {"all": two.flat_map(lambda rows: rows.select("row", x="price"), schema={"x": "int64"})}

    assert words(lineage_of(program, orders=ORDERS)["all"].columns["x"]) == {
        "orders.id": "TRANSFORMATION",
        "orders.price": "TRANSFORMATION",
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", seeds(40))
def test_other_columns_change_nothing(seed: int) -> None:
    """Of a random program: every column that is not named becomes one value, and the output's column stays."""
    drawn, plan, before = usable(seed)
    for output, lineage in column_lineage(plan).items():
        for index, column in enumerate(plan.outputs[output]):
            named = {*lineage.rows, *lineage.columns[column]}
            frames = {
                name: without(frame, plan.inputs[name], {kept for input_, kept in named if input_ == name})
                for name, frame in drawn.frames.items()
            }
            after = logs(drawn, frames)
            if after is None:  # with other values it has no result
                continue
            assert values(before[output], index) == values(after[output], index), f"{output}.{column}\n{drawn}"


def usable(seed: int) -> tuple[Case, Plan, Any]:
    """A case that has a result, and no operator that breaks ties by columns that are not named."""
    for number in range(100 * seed, 100 * seed + 100):
        drawn = case(number)
        plan = build(drawn.program, folding._schemas(drawn.frames))
        if not any(isinstance(node.operator, TopK | Over | Contest) for node in plan.nodes):
            before = logs(drawn, drawn.frames)
            if before is not None:
                return drawn, plan, before
    raise AssertionError(f"no usable case for seed {seed}")


def without(frame: pl.DataFrame, schema: Any, kept: set[str]) -> pl.DataFrame:
    return frame.with_columns(pl.col(name).first() for name in schema if name not in kept)


def logs(drawn: Case, frames: dict[str, pl.DataFrame]) -> Any:
    try:
        return folding.whole(drawn.program, **frames)
    except DdError:
        return None


def values(log: dict[Any, int], location: int) -> Counter[Any]:
    """What a log says of one of its columns."""
    found: Counter[Any] = Counter()
    for (row, time), diff in log.items():
        found[row[location], time] += diff
    return Counter({key: diff for key, diff in found.items() if diff})
