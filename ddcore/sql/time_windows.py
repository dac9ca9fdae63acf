"""Windows of time: TUMBLE, HOP and SESSION in FROM and in GROUP BY, and Spark's window and session_window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlglot import Token, TokenType, exp

from ddcore.base.source_line import planning
from ddcore.sql.brackets import closing
from ddcore.sql.dates import interval
from ddcore.sql.dialects import SPARKS
from ddcore.sql.names import WINDOW_ENDS, Column, Relation, resolve
from ddcore.sql.source import shown
from ddcore.sql.tokens import changed
from ddcore.sql.types import DATE, INT, TIMESTAMP
from ddcore.sql.values import Interval, Value, Values

if TYPE_CHECKING:
    from ddcore.sql.env import Queries

_KINDS = {"tumble": "tumble", "hop": "hop", "session": "sessions", "window": "tumble", "session_window": "sessions"}
"""The functions of GROUP BY, and what collections call them."""
_FORMS = {
    "tumble": "TUMBLE(table, ts, INTERVAL '5 minutes')",
    "hop": "HOP(table, ts, INTERVAL '1 minute', INTERVAL '5 minutes'), first how often a window begins",
    "session": "SESSION(TABLE table PARTITION BY key, DESCRIPTOR(ts), INTERVAL '5 minutes')",
}
_ARGUMENTS = {"TUMBLE": ["DATA", "TIMECOL", "SIZE"], "HOP": ["DATA", "TIMECOL", "SLIDE", "SIZE"]}
"""The names that the standard gives to arguments, ``"DATA" => TABLE t``, in their order."""
_GROUPS = {
    "tumble": "TUMBLE(ts, INTERVAL '5 minutes')",
    "hop": "HOP(ts, INTERVAL '1 minute', INTERVAL '5 minutes'), first how often a window begins",
    "session": "SESSION(ts, INTERVAL '5 minutes')",
    "window": "window(ts, '5 minutes') or window(ts, '5 minutes', '1 minute')",
    "session_window": "session_window(ts, '5 minutes')",
}


def readable(tokens: list[Token]) -> list[Token]:
    """The tokens with names in place of words that sqlglot takes for others: SESSION( and window(, and TABLE and
    PARTITION BY in the arguments of a function of tables, which then are arguments like others.
    """
    result, last = list(tokens), 0
    for number, token in enumerate(tokens[:-1]):
        word, behind = token.text.upper(), tokens[number + 1].token_type
        if word in ("SESSION", "WINDOW") and behind in (TokenType.L_PAREN, TokenType.DOT):
            result[number] = changed(token, TokenType.VAR)
        if word not in ("TUMBLE", "HOP", "SESSION") or behind != TokenType.L_PAREN or number < last:
            continue
        last = closing(tokens, number + 1)
        names = [
            position for position in range(number + 2, last) if tokens[position + 1].token_type == TokenType.FARROW
        ]
        if [tokens[position].text.upper() for position in names] == _ARGUMENTS.get(word):
            for position in (*names, *(position + 1 for position in names)):
                result[position] = changed(tokens[position], TokenType.SPACE)
        for position in range(number + 2, last):
            inner = tokens[position].text.upper()
            if inner == "TABLE" and result[position - 1].token_type in (TokenType.L_PAREN, TokenType.SPACE):
                result[position] = changed(tokens[position], TokenType.SPACE)
            elif inner == "PARTITION BY":
                result[position] = changed(tokens[position], TokenType.COMMA)
    return [token for token in result if token.token_type != TokenType.SPACE]


def with_tables(tree: exp.Create) -> exp.Create:
    """A statement with plain tables in place of the functions of windows in FROM, which they keep in their ``meta``."""
    for node in list(tree.find_all(exp.Table)):
        function = node.this
        if isinstance(function, exp.Anonymous) and function.name.lower() == "table" and len(function.expressions) == 1:
            function = function.expressions[0]
        if isinstance(function, exp.Anonymous) and function.name.lower() in _FORMS and function.expressions:
            first = function.expressions[0]
            if isinstance(first, exp.Column):
                node.set("this", first.this)
                node.set("db", first.args.get("table"))
                node.meta["window"] = function
                function.parent = node
    return tree


def in_windows(queries: Queries, table: exp.Table, relation: Relation) -> Relation:
    """The rows of a table with their windows."""
    source, function = queries.source, table.meta["window"]
    kind, rest = function.name.lower(), function.expressions[1:]
    number = 2 if kind == "hop" else 1
    lengths, names = rest[-number:], [_descriptor(part) for part in rest[:-number]]
    columns = [name for name in names if isinstance(name, exp.Column)]
    is_plain = len(columns) == len(names) and (len(names) == 1 or kind == "session")
    if len(lengths) < number or not names or not is_plain:
        raise source.error(table, f"{shown(function)} is not the form of {kind.upper()}", f"write {_FORMS[kind]}")
    values = Values(source, relation.columns, relation.types)
    *keys, moment = (resolve(source, relation.columns, column).key for column in columns)
    with planning(source.where(table)):
        given = [_length(values, length, values.of(names[-1])) for length in lengths]
        by = [[*relation.carried, *keys]] if kind == "session" else []
        start, end = WINDOW_ENDS
        rows = getattr(relation.rows, _KINDS[kind])(moment, *given, *by, start=start, end=end)
    return replace(
        relation,
        rows=rows,
        columns=(*relation.columns, *(Column("", value_key, value_key) for value_key in WINDOW_ENDS)),
    )


def _descriptor(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and node.name.lower() == "descriptor" and len(node.expressions) == 1:
        inner: exp.Expr = node.expressions[0]
        return inner
    return node


def _length(values: Values, node: exp.Expr, moment: Value) -> Any:
    """A literal length: of time, or for whole numbers a whole number. Raises ProgramError."""
    literal = values.of(node).literal
    if moment.type == INT:
        if isinstance(literal, bool) or not isinstance(literal, int):
            values.source.refuse(node, "a window of whole numbers whose length is none", "write a literal number")
        return literal
    if moment.type not in (DATE, TIMESTAMP):
        values.source.refuse(node, f"a window by {moment.name}", "name a column of timestamps, dates or whole numbers")
    if isinstance(literal, str):
        literal = interval(values, exp.Interval(this=node)).literal
    if not isinstance(literal, Interval) or literal.months:
        values.source.refuse(
            node, "a window whose length is no literal interval of days and less", "such as INTERVAL '15 minutes'"
        )
    return timedelta(days=literal.days, microseconds=literal.microseconds)


# -- GROUP BY ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A function of GROUP BY, and the names of its windows' ends."""

    node: exp.Anonymous
    kind: str

    @property
    def table(self) -> str:
        """What stands before the name of an end: ``window.start``."""
        return self.kind if "window" in self.kind else ""

    def end(self, name: str) -> exp.Column:
        """The column of an end, as the SELECT names it."""
        return exp.column(name, self.table) if self.table else exp.column(f"{self.kind}_{name}", self.kind)

    def standing(self, node: exp.Expr) -> exp.Expr:
        """A part of the query with a column in place of TUMBLE_START(...) and the like."""
        for name in ("start", "end"):
            is_end = isinstance(node, exp.Anonymous) and node.name.lower() == f"{self.kind}_{name}"
            if is_end and node.expressions == self.node.expressions:
                return self.end(name)
        if self.table and isinstance(node, exp.Dot) and node.this == self.node and node.name in ("start", "end"):
            return self.end(node.name)
        return self.end("start") if node == self.node and not self.table else node


def grouped(queries: Queries, node: exp.Select, relation: Relation) -> tuple[exp.Select, Relation]:
    """A SELECT that groups by windows, as one that groups by their ends, and the rows with these."""
    keys = node.args["group"].expressions if node.args.get("group") else []
    found: list[Any] = [key for key in keys if _kind(key)] or (
        [] if node.args.get("group") else _of_rows(queries, node)
    )
    if not found:
        return node, relation
    if len(found) > 1:
        queries.source.refuse(
            found[1],
            "a second window in GROUP BY" if keys else "a second window in SELECT",
            "use a subquery: FROM TUMBLE(...)",
        )
    call = _Call(found[0], _kind(found[0]))
    with planning(queries.source.where(call.node)):
        relation = _with_ends(queries, call, [key for key in keys if key is not call.node], relation)
    whole = node.copy()
    whole.parent = node.parent
    if keys:
        items = [
            new
            for expression in whole.args["group"].expressions
            for new in ([call.end("start"), call.end("end")] if expression == call.node else [expression])
        ]
        whole.args["group"].set("expressions", items)
    whole.transform(call.standing, copy=False)
    return whole, relation


def _of_rows(queries: Queries, node: exp.Select) -> list[Any]:
    """Spark's ``SELECT window(ts, '10 minutes').start`` without groups: each row with each of its windows."""
    if queries.source.dialect not in SPARKS:
        return []
    calls = (part for column in node.expressions for part in column.find_all(exp.Anonymous) if _kind(part) == "window")
    return list(dict.fromkeys(part for part in calls if part.parent_select is node))


def _kind(node: exp.Expr) -> str:
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name if name in _KINDS else ""


def _with_ends(queries: Queries, call: _Call, keys: Sequence[exp.Expr], relation: Relation) -> Relation:
    """The rows with the ends of their windows. Sessions are those of the other keys."""
    source, values = queries.source, Values(queries.source, relation.columns, relation.types)
    moment, *lengths = call.node.expressions or [None]
    most = {"hop": (2,), "window": (1, 2)}.get(call.kind, (1,))
    if moment is None or len(lengths) not in most:
        raise source.error(call.node, f"{shown(call.node)} is not the form", f"write {_GROUPS[call.kind]}")
    value = values.of(moment)
    given = [_length(values, length, value) for length in lengths]
    name = _KINDS[call.kind] if len(given) == 1 else "hop"
    if call.kind == "window":
        given = given[::-1]  # Spark has the length first
    exprs = {"window moment": value.expr}
    if name == "sessions":
        exprs |= {f"window key {number}": values.of(value_key).expr for number, value_key in enumerate(keys)}
        given.append([*relation.carried, *(key for key in exprs if key != "window moment")])
    rows = relation.rows.with_columns(**exprs)
    rows = getattr(rows, name)("window moment", *given, start="window start", end="window end").drop(*exprs)
    ends = [
        Column(call.end(text).table, call.end(text).name, f"window {text}", hidden=True) for text in ("start", "end")
    ]
    return replace(relation, rows=rows, columns=(*relation.columns, *ends))
