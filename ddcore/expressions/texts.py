"""Expressions as text: the canonical one, of which fingerprints are made, and the one that messages show."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from ddcore.expressions.syntax import (
    OPERATORS,
    Alias,
    Call,
    Cast,
    Choice,
    Column,
    Eval,
    Foreign,
    Literal,
    Renamed,
    Tree,
    children,
    every,
    fold,
    is_operator,
    operation,
    values,
)

FAMILIES = {
    "StringExpr": "str.", "TemporalExpr": "dt.", "ListExpr": "list.", "BinaryExpr": "bin.", "ArrayExpr": "arr.",
    "StructExpr": "struct.", "Sql": "sql.", "Bitwise": "bitwise.", "Business": "business.", "Pow": "pow.",
    "Boolean": "", "Range": "", "Trigonometry": "", "Digest": "digest.", "MapExpr": "map.",
    "Extension": "ext.",
}  # fmt: skip
"""Families of functions, and how users write them."""
_CASTS = {"Strict": "cast", "NonStrict": "try_cast", "Overflowing": "wrapping_cast"}
_LONGEST_DISPLAY, _HALF_DISPLAY = 200, 95  # characters of an expression in a message
_LONGEST_PART = 1000  # characters of a part of it, while the message is made
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = {"true", "false", "null", "nan", "inf", "element"}


def text(tree: Tree) -> str:
    """The canonical text of a tree: equal for equal expressions, in every process.

    A part is written where it is first named, and by its number (in the order of the text) from then on.
    """
    written: list[str] = []
    numbers: dict[int, int] = {}
    waiting: list[str | Tree] = [tree]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            written.append(piece)
        elif id(piece) in numbers and children(piece):
            written.append(f"(again {numbers[id(piece)]})")
        else:
            numbers[id(piece)] = len(numbers)
            waiting += reversed(_text(piece))
    return "".join(written)


def _text(tree: Tree) -> list[str | Tree]:  # noqa: PLR0911  (one case, one return)
    """The text of a node, in which its children are yet to be written."""
    match tree:
        case Call():
            name = OPERATORS.get(tree.name) or method(tree.name) + _options(tree.options)
            return _listed(name, tree.args)
        case Choice():
            return _listed("if", children(tree))
        case Alias():
            return _listed("as", [tree.expr], _name(tree.name))
        case Cast():
            return _listed(_CASTS.get(tree.mode, tree.mode), [tree.expr], _dtype(tree.dtype))
        case Eval():
            return _listed("eval", [tree.expr, tree.part], tree.whole + _options(tree.options), _compact(tree.variant))
        case Renamed():
            return _listed("rename", [tree.expr], _compact(tree.rule))
        case Foreign():
            return [f"({snake(tree.kind)} {_compact(tree.body)})"]
    return [_leaf(tree)]


def _listed(head: str, inputs: list[Tree] | tuple[Tree, ...], *more: str) -> list[str | Tree]:
    pieces: list[str | Tree] = [f"({head}"]
    for input_ in inputs:
        pieces += [" ", input_]
    return [*pieces, "".join(f" {word}" for word in more) + ")"]


def _leaf(tree: Tree) -> str:
    match tree:
        case Column(name):
            return _name(name)
        case Literal():
            return _literal(tree)
    return snake(operation(tree))


def literals(tree: Tree) -> list[str]:
    """Which literals have a type of their own, in order."""
    found = []
    for node in every(tree):
        if isinstance(node, Literal):
            found.append("typed" if node.is_typed else "untyped")
        elif isinstance(node, Eval):
            found += literals(node.part)
    return found


def display(tree: Tree) -> str:
    """A tree as a person writes it, for messages: ``a * 2``, ``when(a > 0).then(a).otherwise(b)``.

    Not canonical: options of functions are left out, and a long text is cut in the middle.
    """
    shown = fold(tree, _written)
    return shown if len(shown) <= _LONGEST_DISPLAY else f"{shown[:_HALF_DISPLAY]} ... {shown[-_HALF_DISPLAY:]}"


def _written(tree: Tree, inputs: list[str]) -> str:
    shown = _written_whole(tree, inputs)
    return shown if len(shown) <= _LONGEST_PART else shown[:_HALF_DISPLAY] + "..." + shown[-_HALF_DISPLAY:]


def _written_whole(tree: Tree, inputs: list[str]) -> str:  # noqa: PLR0911  (one case, one return)
    match tree:
        case Call() if tree.name in OPERATORS:
            pairs = zip(tree.args, inputs, strict=True)
            left, right = (f"({shown})" if is_operator(arg) else shown for arg, shown in pairs)
            return f"{left} {OPERATORS[tree.name]} {right}"
        case Call():
            return f"{method(tree.name)}({', '.join(inputs)})"
        case Choice():
            return f"when({inputs[0]}).then({inputs[1]}).otherwise({inputs[2]})"
        case Alias() | Renamed():
            return inputs[0]
        case Cast():
            return f"cast({inputs[0]}, {_dtype(tree.dtype)})"
        case Eval():
            return f"list.{snake(tree.whole) or 'eval'}({inputs[0]}, {display(tree.part)})"
        case Foreign():
            return tree.shown
    return _leaf(tree)


def method(name: str) -> str:
    """The name of a function as users write it: ``str.to_integer``."""
    family, _, last = name.rpartition(".")
    return FAMILIES.get(family, "") + snake(last)


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name not in _WORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _options(options: Any) -> str:
    if isinstance(options, dict):
        return "{" + ",".join(f"{name}={_compact(value)}" for name, value in sorted(options.items())) + "}"
    return "" if options in ((), None) else "{" + _compact(options) + "}"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def snake(name: str) -> str:
    """A name in lower case with underscores: ``SumHorizontal`` is ``sum_horizontal``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _dtype(dtype: pl.DataType) -> str:
    return str(dtype) if "(" in str(dtype) else str(dtype).lower()


def _literal(literal: Literal) -> str:  # noqa: PLR0911  (one case, one return)
    """Literals by value, so that ``1`` is ``1`` whether its type is given or inferred by Polars."""
    value = literal.value
    match literal.dtype:
        case "Int" | "Int64":
            return str(value)
        case "Float" | "Float64":
            return repr(float(value))
        case "Boolean":
            return str(value).lower()
        case "Null":
            return "null"
        case "Str" | "String":
            return _compact(value)
        case "Binary":
            return f"(binary {value.hex()})"
        case "Date":
            return f"(date {_day(value)})"
        case "Datetime" if value[1] == "Microseconds":
            return f"(timestamp {_instant(value[0])} {_compact(value[2])})"
        case "Decimal":
            return f"(decimal {Decimal(f'{value[0]}e{-value[2]}')})"  # exact: scaleb() rounds to 28 digits
        case "List" | "Series":
            series = values(literal)
            return f"(list {series.dtype} {[_element(element) for element in series.to_list()]})"
    return f"(literal {literal.dtype} {_compact(value)})"


def _day(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return str(days)


def _instant(ticks: int) -> str:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks)).isoformat()
    except OverflowError:
        return str(ticks)


def _element(value: Any) -> str:
    return str(value) if isinstance(value, date) else repr(value)
