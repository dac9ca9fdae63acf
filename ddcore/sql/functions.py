"""The operators and functions of SQL: all rules, by the kind of sqlglot's node or by name."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from ddcore.sql import (
    arrays,
    casts,
    conditions,
    dates,
    degrees,
    duckdb,
    duckdb_functions,
    intervals,
    json_paths,
    letters,
    list_functions,
    list_pairs,
    macros,
    numbers,
    patterns,
    spark,
    spark_dates,
    spark_functions,
    structs,
    texts,
    to_char,
    try_casts,
    whole_numbers,
    zones,
)
from ddcore.sql.dialects import SPARKS
from ddcore.sql.rules import BY_DIALECT, NAMES, RULES, nearest
from ddcore.sql.source import shown
from ddcore.sql.types import INT
from ddcore.sql.values import Named, Rule, Value, Values

__all__ = ["RULES"]

_ROOMS = (conditions, numbers, texts, patterns, casts, dates, intervals, to_char, arrays, json_paths, letters,
          whole_numbers, list_functions, zones, structs)  # fmt: skip


def _refused(what: str, hint: str) -> Rule:
    def rule(values: Values, node: exp.Expr) -> Value:
        raise values.source.error(node, f"{what}: {shown(node)}", hint)

    return rule


def _by_name(values: Values, node: exp.Anonymous) -> Value:
    """A function that sqlglot has no kind for."""
    name, dialect = node.name.lower(), values.source.dialect
    named = NAMED[dialect]
    if name not in named:
        values.source.refuse(node, f"the function {name}", nearest(name, dialect))
    count, rule = named[name]
    if count != len(node.expressions) and count >= 0:
        raise values.source.error(
            node, f"{shown(node)}: {name}() takes {count} values", "docs/sql.md lists what is supported"
        )
    return rule(values, node)


def _nulls(*, there: bool) -> Rule:
    """How many of the values are null, or are not."""

    def rule(values: Values, node: exp.Anonymous) -> Value:
        found = [values.of(expression) for expression in node.expressions]
        total = sum((argument.expr.is_null() != there).cast(INT.polars) for argument in found)
        return Value(total, INT, node)  # type: ignore[arg-type]

    return rule


_SAME = "a program must mean the same in every run"
_INSTANTS = "now(), current_timestamp, localtimestamp and current_date, without arguments, are the version's instant"
_CLOCKS = exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp, exp.Localtime

RULES.update(
    {
        **{kind: rule for room in _ROOMS for kind, rule in room.RULES.items()},
        exp.Anonymous: _by_name,
        exp.TryCast: _refused("PostgreSQL has no TRY_CAST", "use CAST: what does not fit is an error of its row"),
        exp.Any: _refused("ANY of what is no subquery is not supported", "write IN (...)"),
        exp.All: _refused("ALL of what is no subquery is not supported", "write NOT IN (...)"),
        **dict.fromkeys(_CLOCKS, _refused("this form of the clock is not supported", _INSTANTS)),
        exp.Rand: _refused("a program may not draw random numbers", _SAME),
    }
)

NAMED: dict[str, dict[str, Named]] = {
    "postgres": {
        **{name: named for room in _ROOMS for name, named in getattr(room, "NAMED", {}).items()},
        **degrees.NAMED | list_pairs.NAMED | macros.named(macros.POSTGRES),
        "num_nulls": (-1, _nulls(there=False)),
        "num_nonnulls": (-1, _nulls(there=True)),
    },
    **dict.fromkeys(
        SPARKS,
        spark.NAMED
        | spark_functions.NAMED
        | structs.BY_PAIRS
        | list_pairs.SPARK
        | macros.named(macros.SPARK)
        | {"mask": (-1, macros.masked)},
    ),
    "duckdb": duckdb.NAMED | duckdb_functions.NAMED | list_pairs.DUCKDB | macros.named(macros.DUCKDB),
}
"""Functions that sqlglot has no kind for, by the dialect and the name."""

_SPARK = (
    {kind: RULES[kind] for kind in spark.SHARED} | spark.RULES | spark_functions.RULES | spark_dates.RULES
    | structs.WRITTEN | list_pairs.OF_SPARK | macros.OF_SPARK
    | {exp.TryCast: try_casts.rule("spark", spark.RULES[exp.Cast]),
       exp.DateDiff: spark_dates.days_or_units(spark.RULES[exp.DateDiff])}
)  # fmt: skip

BY_DIALECT |= {
    "postgres": RULES,
    **dict.fromkeys(SPARKS, _SPARK),
    "duckdb": {kind: RULES[kind] for kind in duckdb.SHARED}
    | duckdb.RULES
    | duckdb_functions.RULES
    | list_pairs.OF_DUCKDB
    | structs.OF_DUCKDB
    | macros.OF_DUCKDB
    | {exp.TryCast: try_casts.rule("duckdb", RULES[exp.Cast])},
}


def _names(dialect: str) -> list[str]:
    """The functions of a dialect, by the names that sqlglot knows for it."""
    known = Dialect.get_or_raise(dialect).parser_class.FUNCTIONS
    kinds = {name for kind in BY_DIALECT[dialect] if issubclass(kind, exp.Func) for name in kind.sql_names()}
    return sorted({name.lower() for name in kinds if name in known} | NAMED[dialect].keys())


NAMES |= {dialect: _names(dialect) for dialect in BY_DIALECT}
