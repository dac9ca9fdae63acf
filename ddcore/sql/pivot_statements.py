"""``PIVOT t ON y IN (1, 2) USING sum(x)``, DuckDB's statement: as the PIVOT of a table in FROM that it means."""

from __future__ import annotations

from itertools import product

from sqlglot import Token, TokenType, exp

from ddcore.sql.source import Source, shown
from ddcore.sql.tokens import word

_WORDS = ("PIVOT", "UNPIVOT")


def with_select(tokens: list[Token], query: int) -> list[Token]:
    """The tokens of a statement with ``SELECT * FROM (...)`` around a query that is such a statement."""
    if word(tokens, query) not in _WORDS:
        return tokens
    first, last = tokens[query], tokens[-1]
    before = [(TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM"), (TokenType.L_PAREN, "(")]
    opening = [Token(kind, text, first.line, first.col, first.start, first.start) for kind, text in before]
    closing = Token(TokenType.R_PAREN, ")", last.line, last.col, last.end, last.end)
    return [*tokens[:query], *opening, *tokens[query:], closing]


def with_pivots(source: Source, tree: exp.Create) -> exp.Create:
    """A statement with tables that have a PIVOT in place of ``(PIVOT t ON ...)`` in FROM. Raises ProgramError."""
    for node in list(tree.find_all(exp.Subquery)):
        pivot = node.this
        if isinstance(pivot, exp.Pivot):
            table = pivot.this
            made = _unpivot(source, pivot) if pivot.args.get("unpivot") else _pivot(source, pivot)
            made.set("alias", node.args.get("alias"))
            table.set("pivots", [*(table.args.get("pivots") or []), made])
            node.replace(table)
    return tree


def _pivot(source: Source, pivot: exp.Pivot) -> exp.Pivot:
    """Columns are called by their values, and by their aggregates where these have names."""
    aggregates = pivot.args.get("using") or [exp.Count(this=exp.Star())]
    for field in pivot.expressions:
        if not isinstance(field, exp.In) or not isinstance(field.this, exp.Column) or not field.expressions:
            hint = f"write the values out: ON {shown(field)} IN (1, 2)"
            source.refuse(field, "PIVOT by whatever values there are", hint)
    unnamed = [aggregate for aggregate in aggregates if not isinstance(aggregate, exp.Alias)]
    if unnamed and len(aggregates) > 1:
        raise source.error(unnamed[0], "this aggregate of several has no name", f"write {shown(unnamed[0])} AS name")
    values = product(*([_called(value) for value in field.expressions] for field in pivot.expressions))
    names = ["_".join([*texts, *([] if unnamed else [of.alias])]) for texts in values for of in aggregates]
    return exp.Pivot(
        expressions=aggregates, fields=list(pivot.expressions), group=pivot.args.get("group"),
        columns=[exp.to_identifier(name, quoted=True) for name in names],
    )  # fmt: skip


def _called(value: exp.Expr) -> str:
    """What the column of a value is called."""
    if isinstance(value, exp.Boolean):
        return str(value.this).lower()
    return value.name if isinstance(value, exp.Literal) else value.sql()


def _unpivot(source: Source, pivot: exp.Pivot) -> exp.Pivot:
    into = pivot.args.get("into")
    name, values = (into.this, into.expressions) if into is not None else (None, [])
    for column in pivot.expressions:
        if not isinstance(column, exp.Column):
            source.refuse(column, "this part of an UNPIVOT", "name the columns: UNPIVOT t ON x, y INTO NAME n VALUE v")
    field = exp.In(this=exp.to_identifier(name.name if name else "name"), expressions=list(pivot.expressions))
    of = [exp.to_identifier(value.name) for value in values] or [exp.to_identifier("value")]
    return exp.Pivot(expressions=of, fields=[field], unpivot=True, include_nulls=pivot.args.get("include_nulls"))
