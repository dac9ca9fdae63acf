"""The text of a program: statements as sqlglot's trees, with the place of each part."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError

from ddcore.errors import ProgramError

__all__ = ["DIALECT", "Declared", "Loop", "Source", "View", "parse"]

DIALECT = "postgres"
_LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Declared:
    """The columns of a binding of WITH MUTUALLY RECURSIVE: names, and their types as written."""

    names: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """The limit of a WITH MUTUALLY RECURSIVE: ``rounds``, None for the default, and whether it then returns."""

    rounds: int | None = None
    returns: bool = False


@dataclass
class Source:
    """The text with its file's name. ``declared`` and ``loops`` are found by where the name of a binding begins."""

    file: str
    text: str
    declared: dict[int, Declared] = field(default_factory=dict)
    loops: dict[int, Loop] = field(default_factory=dict)

    def at(self, offset: int) -> str:
        """``file:line:column`` of a character, both from 1."""
        before = self.text[:offset]
        return f"{self.file}:{before.count(chr(10)) + 1}:{offset - before.rfind(chr(10))}"

    def place(self, node: exp.Expr) -> str:
        """``file:line:column`` of a part: of the first name in it, else of the part around it."""
        around: exp.Expr | None = node
        while around is not None:
            starts = [each.meta["start"] for each in around.walk() if "start" in each.meta]
            if starts:
                return self.at(min(starts))
            around = around.parent
        return f"{self.file}:1:1"

    def error(self, node: exp.Expr, message: str, hint: str = "") -> ProgramError:
        """An error at a part of the text."""
        return ProgramError(f"{self.place(node)}: {message}", hint)

    def refuse(self, node: exp.Expr, what: str, hint: str = "docs/sql.md lists what is supported") -> NoReturn:
        """Raise the error of what is SQL but is not supported."""
        raise self.error(node, f"{what} is not supported: {shown(node)}", hint)


def shown(node: exp.Expr) -> str:
    """A part as SQL, cut where it is long."""
    text = " ".join(node.sql(dialect=DIALECT).split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


@dataclass(frozen=True)
class View:
    """One statement: ``CREATE VIEW name (columns) AS query``. A ``temporary`` one is no output."""

    name: str
    columns: tuple[exp.Identifier, ...]
    query: exp.Expr
    temporary: bool
    node: exp.Expr


def parse(text: str, file: str) -> tuple[list[View], Source]:
    """The views of a program, in order. Raises ProgramError, with the place, where it is something else."""
    source = Source(file, text)
    dialect = Dialect.get_or_raise(DIALECT)
    try:
        tokens = _without_recursion(list(dialect.tokenize(text)), source)
        with _quiet():
            trees = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text)
    except SqlglotError as error:
        raise _syntax_error(source, error) from None
    except RecursionError:
        raise ProgramError(f"{file}: the statements are nested too deeply", "use several views") from None
    views = [_view(source, tree) for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]
    if not any(not view.temporary for view in views):
        raise ProgramError(f"{file}: there is no view", "write CREATE VIEW name AS SELECT ...")
    return views, source


@contextmanager
def _quiet() -> Iterator[None]:
    """sqlglot logs a warning about a statement that it cannot read, of which we raise an error."""
    logger = logging.getLogger("sqlglot")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _syntax_error(source: Source, error: SqlglotError) -> ProgramError:
    found: dict[str, Any] = (getattr(error, "errors", None) or [{}])[0]
    what = str(found.get("description") or error).partition("<Token")[0].partition("<class")[0].strip().rstrip(".:")
    where = f"{source.file}:{found['line']}:{_column(found)}" if found.get("line") else source.file
    near = f" at {found['highlight']!r}" if found.get("highlight") else ""
    first = what.partition("\n")[0].removesuffix(" but got")
    return ProgramError(f"{where}: this is no SQL{near}: {first}", "correct the statement; docs/sql.md has examples")


def _column(found: dict[str, Any]) -> int:
    """sqlglot counts to the last character of a token."""
    return max(int(found["col"]) - len(found.get("highlight") or "") + 1, 1)


def _view(source: Source, tree: exp.Expr) -> View:
    if (
        not isinstance(tree, exp.Create)
        or tree.kind != "VIEW"
        or not isinstance(tree.expression, exp.Query | exp.Values)
    ):
        if isinstance(tree, exp.Command):  # a statement that sqlglot cannot read
            raise source.error(tree, f"this cannot be read: {shown(tree)}", "write CREATE VIEW name AS SELECT ...")
        name = "a query without a view" if isinstance(tree, exp.Query) else f"the statement {tree.key.upper()}"
        raise source.error(tree, f"{name}: {shown(tree)}", "a program is a list of CREATE VIEW name AS SELECT ...")
    kinds = {exp.TemporaryProperty, exp.MaterializedProperty}
    properties = tree.args.get("properties")
    others = [each for each in (properties.expressions if properties else []) if type(each) not in kinds]
    if others or tree.args.get("exists") or tree.args.get("replace"):
        raise source.error(tree, "CREATE VIEW takes a name, columns and a query only", "write CREATE VIEW name AS ...")
    temporary = bool(properties and properties.find(exp.TemporaryProperty))
    target = tree.this
    columns = tuple(target.expressions) if isinstance(target, exp.Schema) else ()
    table = target.this if isinstance(target, exp.Schema) else target
    if table.args.get("db"):
        raise source.error(table, f"{table.sql()}: a view has a plain name", "leave the schema out")
    return View(table.name, columns, tree.expression, temporary, table)


# -- WITH MUTUALLY RECURSIVE ------------------------------------------------------------------------------------------


def _without_recursion(tokens: list[Token], source: Source) -> list[Token]:
    """The tokens with WITH RECURSIVE in place of WITH MUTUALLY RECURSIVE, which sqlglot does not know.

    What goes with it, the limit and the types of the columns, is kept in ``source``.
    """
    dropped: set[int] = set()
    for number, token in enumerate(tokens):
        if token.token_type == TokenType.WITH and _words(tokens, number + 1) == ["MUTUALLY", "RECURSIVE"]:
            dropped.add(number + 1)
            dropped.update(_bindings(tokens, number + 3, source))
    return [token for number, token in enumerate(tokens) if number not in dropped]


def _words(tokens: Sequence[Token], first: int, count: int = 2) -> list[str]:
    return [token.text.upper() for token in tokens[first : first + count]]


def _bindings(tokens: Sequence[Token], place: int, source: Source) -> Iterator[int]:
    """The numbers of the tokens to drop, from the one behind RECURSIVE on."""
    loop = Loop()
    if _is(tokens, place, TokenType.L_PAREN):
        end = _closing(tokens, place, source)
        loop = _limit(tokens[place + 1 : end], source)
        yield from range(place, end + 1)
        place = end + 1
    while place < len(tokens):
        name, place = place, place + 1
        if not _is(tokens, place, TokenType.L_PAREN):
            raise ProgramError(
                f"{source.at(tokens[name].start)}: {tokens[name].text} has no columns",
                "WITH MUTUALLY RECURSIVE name (column type, ...) AS (SELECT ...)",
            )
        end = _closing(tokens, place, source)
        columns = list(_columns(tokens, place, end, source))
        names = tuple(tokens[number].text for number, _ in columns)
        types = tuple(source.text[tokens[kind[0]].start : tokens[kind[-1]].end + 1] for _, kind in columns)
        source.declared[tokens[name].start] = Declared(names, types)
        source.loops[tokens[name].start] = loop
        yield from (number for _, kind in columns for number in kind)
        place = end + 1
        if not _is(tokens, place, TokenType.ALIAS) or not _is(tokens, place + 1, TokenType.L_PAREN):
            return
        place = _closing(tokens, place + 1, source) + 1
        if not _is(tokens, place, TokenType.COMMA):
            return
        place += 1


def _columns(tokens: Sequence[Token], start: int, end: int, source: Source) -> Iterator[tuple[int, range]]:
    """The token of each column's name, and those of its type."""
    first, depth = start + 1, 0
    for number in range(start + 1, end + 1):
        kind = tokens[number].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN and number < end)
        if number == end or (kind == TokenType.COMMA and not depth):
            if number - first < 2:
                raise ProgramError(
                    f"{source.at(tokens[first].start)}: the column {tokens[first].text} has no type",
                    "give each column of a recursive binding a type, for example (node bigint, name text)",
                )
            yield first, range(first + 1, number)
            first = number + 1


def _limit(tokens: Sequence[Token], source: Source) -> Loop:
    words = [token.text.upper() for token in tokens]
    match words:
        case ["RETURN", "AT", "RECURSION", "LIMIT", rounds] if rounds.isdigit() and int(rounds) > 0:
            return Loop(int(rounds), returns=True)
        case ["ERROR", "AT", "RECURSION", "LIMIT", rounds] | ["RECURSION", "LIMIT", rounds] if (
            rounds.isdigit() and int(rounds) > 0
        ):
            return Loop(int(rounds))
    where = source.at(tokens[0].start) if tokens else source.file
    raise ProgramError(
        f"{where}: the option {' '.join(words)} of WITH MUTUALLY RECURSIVE is unknown",
        "(RETURN AT RECURSION LIMIT n) or (ERROR AT RECURSION LIMIT n)",
    )


def _is(tokens: Sequence[Token], number: int, kind: TokenType) -> bool:
    return number < len(tokens) and tokens[number].token_type == kind


def _closing(tokens: Sequence[Token], start: int, source: Source) -> int:
    """The number of the parenthesis that closes the one at ``start``."""
    depth = 0
    for number in range(start, len(tokens)):
        kind = tokens[number].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if not depth:
            return number
    raise ProgramError(f"{source.at(tokens[start].start)}: this parenthesis is never closed", "add the closing one")
