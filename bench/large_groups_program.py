"""The programs of :mod:`bench.large_groups`: one result of one large group. A project gets this file as its program."""

from __future__ import annotations

import ddcore as dd


def count(rows: dd.Collection) -> dict[str, dd.Collection]:
    return {"result": rows.group_by("kind").agg(n=dd.count())}


def sum(rows: dd.Collection) -> dict[str, dd.Collection]:
    return {"result": rows.group_by("kind").agg(total=dd.sum("value"))}


def min(rows: dd.Collection) -> dict[str, dd.Collection]:
    return {"result": rows.group_by("kind").agg(least=dd.min("value"))}


def top_10(rows: dd.Collection) -> dict[str, dd.Collection]:
    return {"result": rows.group_by("kind").top_k(10, "value", descending=True)}
