"""The operators and functions of SQL: all rules, by the kind of sqlglot's node or by name."""

from __future__ import annotations

import difflib

from sqlglot import exp

from ddcore.sql import arrays, casts, conditions, dates, numbers, patterns, texts
from ddcore.sql.rules import RULES
from ddcore.sql.source import shown
from ddcore.sql.values import INT, Named, Rule, Value, Values

__all__ = ["RULES"]

_ROOMS = (conditions, numbers, texts, patterns, casts, dates, arrays)


def _refused(what: str, hint: str) -> Rule:
    def rule(values: Values, node: exp.Expr) -> Value:
        raise values.source.error(node, f"{what}: {shown(node)}", hint)

    return rule


def _by_name(values: Values, node: exp.Anonymous) -> Value:
    """A function that sqlglot has no kind for."""
    name = node.name.lower()
    if name not in NAMED:
        near = difflib.get_close_matches(name, [*NAMED, *_NAMES], 1)
        hint = f"did you mean {near[0]!r}?" if near else "docs/sql.md lists what is supported"
        values.source.refuse(node, f"the function {name}", hint)
    count, rule = NAMED[name]
    if count != len(node.expressions) and count >= 0:
        raise values.source.error(
            node, f"{shown(node)}: {name}() takes {count} values", "docs/sql.md lists what is supported"
        )
    return rule(values, node)


def _nulls(*, there: bool) -> Rule:
    """How many of the values are null, or are not."""

    def rule(values: Values, node: exp.Anonymous) -> Value:
        found = [values.of(expression) for expression in node.expressions]
        total = sum((each.expr.is_null() != there).cast(INT.polars) for each in found)
        return Value(total, INT, node)  # type: ignore[arg-type]

    return rule


_SAME = "a program must mean the same in every run"
_CLOCKS = exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp, exp.Localtime

RULES.update(
    {
        **{kind: rule for room in _ROOMS for kind, rule in room.RULES.items()},
        exp.Anonymous: _by_name,
        exp.TryCast: _refused("TRY_CAST is not supported", "use CAST: what does not fit is an error of its row"),
        exp.Any: _refused("ANY of what is no subquery is not supported", "write IN (...)"),
        exp.All: _refused("ALL of what is no subquery is not supported", "write NOT IN (...)"),
        **dict.fromkeys(_CLOCKS, _refused("a program may not read the clock", f"{_SAME}: give times in columns")),
        exp.Rand: _refused("a program may not draw random numbers", _SAME),
    }
)

NAMED: dict[str, Named] = {
    **{name: named for room in (texts, dates, arrays) for name, named in room.NAMED.items()},
    "num_nulls": (-1, _nulls(there=False)),
    "num_nonnulls": (-1, _nulls(there=True)),
}
_NAMES = sorted(name.lower() for kind in RULES if issubclass(kind, exp.Func) for name in kind.sql_names())
"""Names of functions that sqlglot has a kind for."""
