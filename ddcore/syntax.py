"""Expressions as trees: read from Polars' JSON, written as canonical text, converted back to expressions.

A tree is the JSON that Polars serializes an expression to (dicts, lists, numbers), so any subtree can become an
expression again. One kind of node is our own: ``{"NonFinite": "inf"}``, for floats that JSON has no number for.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from ddcore.errors import ProgramError

Tree = Any
"""A node of the JSON: a dict with one key, the kind of the node, or the bare kind."""

_FAMILIES = {
    "StringExpr": "str.", "TemporalExpr": "dt.", "ListExpr": "list.", "BinaryExpr": "bin.", "ArrayExpr": "arr.",
    "StructExpr": "struct.", "Sql": "sql.", "Bitwise": "bitwise.", "Business": "business.", "Pow": "pow.",
    "Boolean": "", "Range": "", "Trigonometry": "",
}  # fmt: skip
_SIGNS = {
    "Plus": "+", "Minus": "-", "Multiply": "*", "TrueDivide": "/", "FloorDivide": "//", "TruncDivide": "div",
    "Modulus": "%", "Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "EqValidity": "==",
    "NotEqValidity": "!==", "And": "and", "Or": "or", "Xor": "xor", "LogicalAnd": "and", "LogicalOr": "or",
}  # fmt: skip
_CASTS = {"Strict": "cast", "NonStrict": "try_cast", "Overflowing": "wrapping_cast"}
_LONGEST_DISPLAY, _HALF_DISPLAY = 200, 95  # characters of an expression in a message
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = {"true", "false", "null", "nan", "inf", "element"}


def read(expr: pl.Expr) -> Tree:
    """The tree of an expression. Raises ProgramError for one without a stable form, such as a Python function."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text = expr.meta.serialize(format="json")
    except Exception:  # Polars needs cloudpickle for Python functions, and says so in several ways
        raise ProgramError(
            f"the expression {_shown(expr)} has no text of its own: it calls a Python function",
            "use Polars' own functions, or flat_map(function, schema=...)",
        ) from None
    tree = json.loads(text)
    if '"Float' in text and "null" in text:
        tree = _with_non_finite(tree, expr)
    return rewrite(tree, _with_list_in) if '"Series"' in text else tree


def build(tree: Tree) -> pl.Expr:
    """The expression that a tree stands for."""

    def restore(node: Tree) -> Tree:
        if isinstance(node, dict) and "NonFinite" in node:
            return cast({"Literal": {"Scalar": {"String": node["NonFinite"]}}}, "Float64")
        return with_children(node, [restore(child) for child in children(node)])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pl.Expr.deserialize(io.StringIO(json.dumps(restore(tree))), format="json")


def cast(tree: Tree, dtype: Any) -> Tree:
    """A strict cast; ``dtype`` as Polars writes it in JSON, for example ``"Int64"``."""
    return {"Cast": {"expr": tree, "dtype": {"Literal": dtype}, "options": "Strict"}}


def binary(op: str, left: Tree, right: Tree) -> Tree:
    """A binary operation by Polars' name for it, for example ``Plus``."""
    return {"BinaryExpr": {"left": left, "op": op, "right": right}}


def function(name: str, *inputs: Tree) -> Tree:
    """A call of a function without options, for example ``Abs``."""
    return {"Function": {"input": list(inputs), "function": name}}


def boolean(name: str, *inputs: Tree) -> Tree:
    """A call of a function of Polars' boolean family, for example ``IsNull``."""
    return {"Function": {"input": list(inputs), "function": {"Boolean": name}}}


def ternary(predicate: Tree, truthy: Tree, falsy: Tree) -> Tree:
    """A choice; Polars evaluates each branch for the rows that take it."""
    return {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}


def kind(tree: Tree) -> str:
    """The kind of a node: ``Column``, ``Literal``, ``BinaryExpr``, ``Function``, ..."""
    return tree if isinstance(tree, str) else next(iter(tree))


def children(tree: Tree) -> list[Tree]:
    """The subtrees from whose values, row by row, a node's value is computed."""
    match tree:
        case {"BinaryExpr": {"left": left, "right": right}}:
            return [left, right]
        case {"Function": {"input": inputs}}:
            return list(inputs)
        case {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}:
            return [predicate, truthy, falsy]
        case {"Alias": [inner, _]} | {"KeepName": inner}:
            return [inner]
        case {"Cast": {"expr": inner}} | {"RenameAlias": {"expr": inner}} | {"Eval": {"expr": inner}}:
            return [inner]
    return []


def with_children(tree: Tree, new: list[Tree]) -> Tree:
    """The node with other subtrees in the places of :func:`children`."""
    if not new:
        return tree
    name, body = kind(tree), tree[kind(tree)]
    if name == "Function":
        return {name: body | {"input": new}}
    if name == "Alias":
        return {name: [new[0], body[1]]}
    if name == "KeepName":
        return {name: new[0]}
    places = {"BinaryExpr": ("left", "right"), "Ternary": ("predicate", "truthy", "falsy")}.get(name, ("expr",))
    return {name: body | dict(zip(places, new, strict=True))}


def walk(tree: Tree) -> Iterator[Tree]:
    """Every node, parents before children."""
    yield tree
    for child in children(tree):
        yield from walk(child)


def rewrite(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with ``change`` applied to every node, children first."""
    return change(with_children(tree, [rewrite(child, change) for child in children(tree)]))


def bare(tree: Tree) -> Tree:
    """The tree without the names its top gives to the result."""
    while kind(tree) in ("Alias", "KeepName", "RenameAlias"):
        tree = children(tree)[0]
    return tree


def operation(tree: Tree) -> str:
    """The operation of a node: the operator of a binary expression, the qualified name of a function, else its kind.

    Functions that Polars keeps in families are ``Family.Name``; its SQL operators are ``Sql.Name``.
    """
    if kind(tree) == "BinaryExpr":
        return str(tree["BinaryExpr"]["op"])
    return named(tree)[0] if kind(tree) == "Function" else kind(tree)


def columns(tree: Tree) -> list[str]:
    """Names of the columns a tree reads, sorted."""
    return sorted({str(node["Column"]) for node in walk(tree) if kind(node) == "Column"})


def is_literal(tree: Tree) -> bool:
    """Whether a node is a literal value or list of values."""
    return kind(tree) in ("Literal", "NonFinite")


# -- text -------------------------------------------------------------------------------------------------------------


def text(tree: Tree) -> str:  # noqa: PLR0911  (one case, one return)
    """The canonical text of a tree: equal for equal expressions, in every process."""
    body: Any = tree if isinstance(tree, str) else tree[kind(tree)]
    match kind(tree):
        case "Column":
            return _name(body)
        case "Literal":
            return _literal(body)
        case "NonFinite" | "Element":
            return str(body).lower()
        case "BinaryExpr":
            return _call(_SIGNS.get(body["op"], body["op"]), children(tree))
        case "Ternary":
            return _call("if", children(tree))
        case "Alias":
            return f"(as {text(body[0])} {_name(body[1])})"
        case "Cast":
            return f"({_CASTS.get(body['options'], body['options'])} {text(body['expr'])} {_dtype(body['dtype'])})"
        case "Eval":
            return f"(eval {text(body['expr'])} {text(body['evaluation'])} {_compact(body['variant'])})"
        case "Function":
            name, options = named(tree)
            family, _, last = name.rpartition(".")
            return _call(_FAMILIES.get(family, "") + snake(last) + _options(options), children(tree))
    return f"({snake(kind(tree))} {_compact(body)})" if isinstance(tree, dict) else f"({snake(tree)})"


def display(tree: Tree) -> str:
    """A tree as a person writes it, for messages: ``a * 2``, ``when(a > 0).then(a).otherwise(b)``.

    Not canonical: options of functions are left out, and a long text is cut in the middle.
    """
    shown = _written(tree)
    return shown if len(shown) <= _LONGEST_DISPLAY else f"{shown[:_HALF_DISPLAY]} ... {shown[-_HALF_DISPLAY:]}"


def _written(tree: Tree) -> str:  # noqa: PLR0911  (one case, one return)
    inputs = [_written(child) for child in children(tree)]
    match kind(tree):
        case "BinaryExpr":
            left, right = (
                f"({shown})" if kind(child) == "BinaryExpr" else shown
                for child, shown in zip(children(tree), inputs, strict=True)
            )
            return f"{left} {_SIGNS.get(tree['BinaryExpr']['op'], tree['BinaryExpr']['op'])} {right}"
        case "Ternary":
            return f"when({inputs[0]}).then({inputs[1]}).otherwise({inputs[2]})"
        case "Alias" | "KeepName" | "RenameAlias":
            return inputs[0]
        case "Cast":
            return f"cast({inputs[0]}, {_dtype(tree['Cast']['dtype'])})"
        case "Function":
            family, _, last = named(tree)[0].rpartition(".")
            return f"{_FAMILIES.get(family, '')}{snake(last)}({', '.join(inputs)})"
        case "Column" | "Literal" | "NonFinite" | "Element":
            return text(tree)
    return _shown(build(tree))


def _call(head: str, inputs: list[Tree]) -> str:
    return f"({' '.join([head, *map(text, inputs)])})"


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name not in _WORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _options(options: Any) -> str:
    if isinstance(options, dict):
        return "{" + ",".join(f"{name}={_compact(value)}" for name, value in sorted(options.items())) + "}"
    return "" if options is None else "{" + _compact(options) + "}"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def snake(name: str) -> str:
    """A name of Polars' as users write it: ``SumHorizontal`` is ``sum_horizontal``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _dtype(dtype: Any) -> str:
    inner = dtype.get("Literal", dtype) if isinstance(dtype, dict) else dtype
    return inner.lower() if isinstance(inner, str) else _compact(inner)


def _literal(body: dict[str, Any]) -> str:  # noqa: PLR0911  (one case, one return)
    """Literals by value, so that ``1`` is ``1`` whether its type is given or inferred by Polars."""
    match body:
        case {"Dyn": {"Int": int(value)}} | {"Scalar": {"Int64": int(value)}}:
            return str(value)
        case {"Dyn": {"Float": value}} | {"Scalar": {"Float64": value}}:
            return repr(float(value))
        case {"Scalar": {"Boolean": value}}:
            return str(value).lower()
        case {"Scalar": {"Null": _}}:
            return "null"
        case {"Dyn": {"Str": value}} | {"Scalar": {"String": value}}:
            return _compact(value)
        case {"Scalar": {"Binary": value}}:
            return f"(binary {bytes(value).hex()})"
        case {"Scalar": {"Date": int(days)}}:
            return f"(date {_day(days)})"
        case {"Scalar": {"Datetime": [int(ticks), "Microseconds", zone]}}:
            return f"(timestamp {_instant(ticks)} {_compact(zone)})"
        case {"Scalar": {"Decimal": [int(unscaled), int(_), int(scale)]}}:
            return f"(decimal {Decimal(unscaled).scaleb(-scale)})"
        case {"Scalar": {"List": packed}} | {"Series": packed}:
            series = _unpacked(packed)
            return f"(list {series.dtype} {[_element(value) for value in series.to_list()]})"
    return f"(literal {_compact(body)})"


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


def _unpacked(packed: list[int]) -> pl.Series:
    """The values of a list literal, which Polars stores as an Arrow stream."""
    return pl.read_ipc_stream(io.BytesIO(bytes(packed))).to_series()


def named(tree: Tree) -> tuple[str, Any]:
    """The qualified name of a function node and its options."""
    body = tree["Function"]["function"]
    if isinstance(body, str):
        return body, None
    if len(body) != 1:
        return "Anonymous", body
    family, rest = next(iter(body.items()))
    if family not in _FAMILIES:
        return family, rest
    if isinstance(rest, str):
        return f"{family}.{rest}", None
    name, options = next(iter(rest.items()))
    return (f"Sql.{options}", None) if (family, name) == ("Sql", "Binary") else (f"{family}.{name}", options)


# -- floats that JSON cannot hold ----------------------------------------------------------------------------------


def _with_non_finite(tree: Tree, expr: pl.Expr) -> Tree:
    """The tree with the floats that JSON wrote as null, read from the expression itself."""
    if _is_null_float(tree):
        return {"NonFinite": str(pl.select(expr).item())}
    inner = children(tree)
    parts = _parts(tree, expr) if inner and kind(tree) != "Eval" else []
    if len(parts) != len(inner):
        if '"Float":null' in _compact(tree) or '"Float64":null' in _compact(tree):
            raise ProgramError(
                f"cannot read the infinity or NaN in {_shown(expr)}", "put it in a column with select() first"
            )
        return tree
    return with_children(tree, [_with_non_finite(child, part) for child, part in zip(inner, parts, strict=True)])


def _with_list_in(node: Tree) -> Tree:
    """Membership in a series is membership in a list of its values; Polars stores both alike."""
    match node:
        case {"Function": {"input": [value, {"Literal": {"Series": packed}}], "function": {"Boolean": {"IsIn": _}}}}:
            return with_children(node, [value, {"Literal": {"Scalar": {"List": packed}}}])
        case {"Function": {"input": [value, {"Literal": {"Series": packed}}], "function": {"Sql": {"IsIn": how}}}}:
            (values,) = _unpacked(packed)  # SQL's list comes as a series with one row
            listed = pl.lit(values.to_list(), dtype=pl.List(values.dtype))
            literal = json.loads(listed.meta.serialize(format="json"))
            return {"Function": {"input": [value, literal], "function": {"Boolean": {"IsIn": how}}}}
    return node


def _parts(tree: Tree, expr: pl.Expr) -> list[pl.Expr]:
    """The expressions of :func:`children`: Polars returns the last one first, but a predicate before its branches."""
    popped = expr.meta.pop()
    return [popped[0], popped[2], popped[1]] if kind(tree) == "Ternary" else popped[::-1]


def _is_null_float(tree: Tree) -> bool:
    match tree:
        case {"Literal": {"Dyn": {"Float": None}} | {"Scalar": {"Float64": None}}}:
            return True
    return False


def _shown(expr: pl.Expr, limit: int = 80) -> str:
    shown = str(expr).replace("\n", " ")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
