"""Arguments of the algorithms: edges and nodes under the names that the algorithms use, and checks of their columns."""

from __future__ import annotations

from typing import Any

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.source_line import caller
from ddcore.program.collection import Collection
from ddcore.text.wording import kind_of, meant


def edges_of(algorithm: str, edges: Collection, src: str, dst: str, **values: str) -> Collection:
    """(src, dst, and a column for each of ``values``), without rows that have a null there.

    Raises ProgramError for columns that do not exist, and for ends of two types.
    """
    names = {"src": src, "dst": dst, **values}
    _require(algorithm, "edges", edges, names)
    if src == dst:
        raise ProgramError(f"{caller()}: {algorithm}: src and dst are both {src}", "an edge has two columns")
    kinds = edges.schema
    if kinds[src] != kinds[dst]:
        raise ProgramError(
            f"{caller()}: {algorithm}: {src} is {kinds[src]} and {dst} is {kinds[dst]}", "cast one with with_columns()"
        )
    columns = {name: pl.col(column) for name, column in names.items()}
    return edges.select(**columns).where(*(pl.col(name).is_not_null() for name in names))


def rows_of(algorithm: str, what: str, nodes: Collection, node: str, edges: Collection) -> Collection:
    """(node) of a collection of nodes, without null. Raises ProgramError where it does not fit the edges."""
    _require(algorithm, what, nodes, {"node": node})
    kind, wanted = nodes.schema[node], edges.schema["src"]
    if kind != wanted:
        raise ProgramError(
            f"{caller()}: {algorithm}: {node} of {what} is {kind}, and the ends of edges are {wanted}",
            "cast one with with_columns()",
        )
    return nodes.select(node=pl.col(node)).where(pl.col("node").is_not_null())


def nodes_of(algorithm: str, edges: Collection, nodes: Collection | None, node: str) -> Collection:
    """(node): every end of an edge, and ``nodes`` if there are any; each once."""
    ends = edges.select(node="src").concat(edges.select(node="dst"))
    return (ends if nodes is None else ends.concat(rows_of(algorithm, "nodes", nodes, node, edges))).distinct()


def both_directions(edges: Collection) -> Collection:
    """(src, dst) of an undirected graph: each edge in both directions once, without those from a node to itself."""
    edges = edges.where("src <> dst")
    return edges.concat(edges.select(src="dst", dst="src")).distinct()


def positive(algorithm: str, what: str, value: Any) -> int:
    """A whole number of at least 1. Raises ProgramError for others."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ProgramError(f"{caller()}: {algorithm}: {what} is {value!r}", "give a whole number of at least 1")
    return value


def _require(algorithm: str, what: str, collection: Any, names: dict[str, str]) -> None:
    if not callable(getattr(collection, "iterate", None)):
        raise ProgramError(
            f"{caller()}: {algorithm}: {what} is no collection, but {kind_of(collection)}",
            f"dd.replay(program, {what}=...) makes collections of frames and gives them to the program",
        )
    for parameter, column in names.items():
        if column not in collection.columns:
            close, columns = meant(column, collection.columns), ", ".join(collection.columns)
            raise ProgramError(
                f"{caller()}: {algorithm}: {what}: there is no column {column}; there are {columns}",
                f"{close + '; ' if close else ''}name the column with {parameter}=",
            )
