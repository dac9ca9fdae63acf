"""Expressions as trees: read from Polars' JSON, written as canonical text, converted back to expressions.

A tree is the JSON that Polars serializes an expression to (dicts, lists, numbers), so any subtree can become an
expression again. One kind of node is our own: ``{"NonFinite": "inf"}``, for floats that JSON has no number for.

A part that :func:`share` names several times is one node with several parents. All functions here visit it once, and
none of them recurses: their cost is linear in the nodes, however deep a tree is. Only Polars' JSON may not be deeper
than :data:`DEEPEST`; :mod:`ddcore.expressions.stages` cuts deeper trees.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, TypeVar

import polars as pl

from ddcore.base.errors import ProgramError

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
_LONGEST_PART = 1000  # characters of a part of it, while the message is made
DEEPEST = 110
"""How many brackets deep the JSON of an expression may be: Polars reads 127, and options of functions need some."""
_NUMBERS = count()  # of shared parts: those of two expressions that become one must differ
_TOKENS = re.compile(r'[][{}]|"(?:[^"\\]|\\.)*"|[^][{},:"\s]+')
_LITERALS = re.compile(r'\{"Literal": \{"(\w+)"')

_T = TypeVar("_T")
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
    tree = _loaded(text)
    if '"Float":null' in text or '"Float64":null' in text:
        tree = _with_non_finite(tree, expr)
    if '"StructEval"' in text:
        tree = _with_shared(tree)
    return rewrite(tree, _with_list_in) if '"Series"' in text else tree


def build(tree: Tree) -> pl.Expr:
    """The expression that a tree stands for. Raises ProgramError for a tree deeper than :data:`DEEPEST`."""
    if depth(tree) > DEEPEST:
        raise too_deep(tree)

    def restore(node: Tree, parts: list[Tree]) -> Tree:
        if isinstance(node, dict) and "NonFinite" in node:
            return cast({"Literal": {"Scalar": {"String": node["NonFinite"]}}}, "Float64")
        return with_children(node, parts)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pl.Expr.deserialize(io.StringIO(json.dumps(fold(tree, restore))), format="json")


def too_deep(tree: Tree) -> ProgramError:
    """The error for an expression that Polars cannot read."""
    return ProgramError(
        f"the expression {display(tree)} is nested too deeply", "compute a part of it in a select() before"
    )


def share(values: Sequence[pl.Expr], body: Callable[..., pl.Expr]) -> pl.Expr:
    """What ``body`` makes of the values, each of which it may name any number of times.

    The expression holds each value once, and so does the tree that it is read as. Polars, too, evaluates it, but
    evaluates all branches of a choice in the body for all rows.
    """
    names = _new_names(values)
    return _bound(names, values, body(*(pl.field(name) for name in names)))


def called(function: Any, values: Sequence[pl.Expr]) -> pl.Expr:
    """A function that Polars' expressions have no method for, by its name and options in JSON."""
    names = _new_names(values)
    body = build({"Function": {"input": [{"Field": [name]} for name in names], "function": function}})
    return _bound(names, values, body)


def _new_names(values: Sequence[pl.Expr]) -> list[str]:
    return [f"={next(_NUMBERS)}" for _ in values]


def _bound(names: Sequence[str], values: Sequence[pl.Expr], body: pl.Expr) -> pl.Expr:
    struct = pl.struct([value.alias(name) for name, value in zip(names, values, strict=True)])
    return struct.struct.with_fields(body.alias("=")).struct.field("=")


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


_CHILDREN: dict[str, Callable[[Any], list[Tree]]] = {
    "BinaryExpr": lambda body: [body["left"], body["right"]],
    "Function": lambda body: list(body["input"]),
    "Ternary": lambda body: [body["predicate"], body["truthy"], body["falsy"]],
    "Alias": lambda body: [body[0]],
    "KeepName": lambda body: [body],
    "StructEval": lambda body: [body["expr"], *body["evaluation"]],
    **dict.fromkeys(("Cast", "RenameAlias", "Eval"), lambda body: [body["expr"]]),
}


def children(tree: Tree) -> list[Tree]:
    """The subtrees from whose values, row by row, a node's value is computed."""
    if isinstance(tree, str):
        return []
    name = next(iter(tree))
    return _CHILDREN[name](tree[name]) if name in _CHILDREN else []


def with_children(tree: Tree, new: list[Tree]) -> Tree:
    """The node with other subtrees in the places of :func:`children`."""
    if all(one is other for one, other in zip(children(tree), new, strict=True)):
        return tree
    name, body = kind(tree), tree[kind(tree)]
    if name == "Function":
        return {name: body | {"input": new}}
    if name == "Alias":
        return {name: [new[0], body[1]]}
    if name == "KeepName":
        return {name: new[0]}
    if name == "StructEval":
        return {name: body | {"expr": new[0], "evaluation": new[1:]}}
    places = {"BinaryExpr": ("left", "right"), "Ternary": ("predicate", "truthy", "falsy")}.get(name, ("expr",))
    return {name: body | dict(zip(places, new, strict=True))}


def nodes(tree: _T, inner: Callable[[_T], list[_T]]) -> list[_T]:
    """Every node once, children before parents."""
    found: list[_T] = []
    done: set[int] = set()
    waiting = [(tree, False)]
    while waiting:
        node, is_open = waiting.pop()
        if id(node) in done:
            continue
        if is_open:
            done.add(id(node))
            found.append(node)
        else:
            waiting.append((node, True))
            waiting += [(child, False) for child in reversed(inner(node)) if id(child) not in done]
    return found


def fold(tree: Tree, change: Callable[[Tree, list[Any]], _T]) -> _T:
    """What ``change`` makes of the tree, from each node and the results of its children."""
    results: dict[int, _T] = {}
    for node in nodes(tree, children):
        results[id(node)] = change(node, [results[id(child)] for child in children(node)])
    return results[id(tree)]


def walk(tree: Tree) -> Iterator[Tree]:
    """Every node once, parents before children."""
    seen: set[int] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += reversed(children(node))


def rewrite(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with ``change`` applied to every node, children first."""
    return fold(tree, lambda node, parts: change(with_children(node, parts)))


def depth(tree: Tree) -> int:
    """How many brackets deep the JSON of a tree is, at most."""
    return fold(tree, own_depth)


def own_depth(node: Tree, parts: list[int]) -> int:
    """The depth of a node, from those of its children."""
    if kind(node) == "Eval":
        parts = [*parts, depth(node["Eval"]["evaluation"])]
    return max(parts) + (3 if kind(node) == "Function" else 2) if parts else 5


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


def result_name(tree: Tree) -> str | None:
    """What Polars calls the result of a tree, where that does not depend on a rule for names."""
    while True:
        match tree:
            case {"Column": str(name)} | {"Alias": [_, str(name)]}:
                return name
            case {"Function": {"function": {"StructExpr": {"FieldByName": str(name)}}}}:
                return name
            case {"KeepName": _} | {"RenameAlias": _}:
                return None
            case {"Ternary": {"truthy": inner}}:
                tree = inner
            case _:
                inner = children(tree)
                if not inner:
                    return "literal" if is_literal(tree) else None
                tree = inner[0]


def is_untyped(node: Tree, known: Container[int]) -> bool:
    """Whether a node may take its type from its neighbours, as literals of Python do.

    ``known``: the nodes inside it that do, by identity.
    """
    match node:
        case {"Literal": {"Dyn": _}} | {"Literal": {"Scalar": {"Null": "Null"}}}:
            return True
        case {"Ternary": _} | {"BinaryExpr": _} | {"Function": _} | {"Alias": _}:
            inner = children(node)
            return all(id(each) in known for each in (inner[1:] if kind(node) == "Ternary" else inner))
    return False


def is_null(tree: Tree) -> bool:
    """Whether a node is the literal null, of any type."""
    match tree:
        case {"Literal": {"Scalar": {"Null": _}}}:
            return True
    return False


def is_literal(tree: Tree) -> bool:
    """Whether a node is a literal value or list of values."""
    return kind(tree) in ("Literal", "NonFinite")


# -- text -------------------------------------------------------------------------------------------------------------


def text(tree: Tree) -> str:
    """The canonical text of a tree: equal for equal expressions, in every process.

    A part is written where it is first named, and by its number (in the order of the text) from then on.
    """
    written: list[str] = []
    numbers: dict[int, int] = {}
    waiting: list[tuple[bool, Any]] = [(True, tree)]
    while waiting:
        is_node, each = waiting.pop()
        if not is_node:
            written.append(each)
        elif id(each) in numbers and children(each):
            written.append(f"(again {numbers[id(each)]})")
        else:
            numbers[id(each)] = len(numbers)
            waiting += reversed(_text(each))
    return "".join(written)


def _text(tree: Tree) -> list[tuple[bool, Any]]:  # noqa: PLR0911  (one case, one return)
    """The text of a node, in which its children are yet to be written: texts and (marked True) trees."""
    body: Any = tree if isinstance(tree, str) else tree[kind(tree)]
    match kind(tree):
        case "Column":
            return [(False, _name(body))]
        case "Literal":
            return [(False, _literal(body))]
        case "NonFinite" | "Element":
            return [(False, str(body).lower())]
        case "BinaryExpr":
            return _call(_SIGNS.get(body["op"], body["op"]), children(tree))
        case "Ternary":
            return _call("if", children(tree))
        case "Alias":
            return _call("as", [body[0]], _name(body[1]))
        case "Cast":
            return _call(_CASTS.get(body["options"], body["options"]), [body["expr"]], _dtype(body["dtype"]))
        case "Eval":
            return _call("eval", [body["expr"], body["evaluation"]], _compact(body["variant"]))
        case "Function":
            name, options = named(tree)
            family, _, last = name.rpartition(".")
            return _call(_FAMILIES.get(family, "") + snake(last) + _options(options), children(tree))
    return [(False, f"({snake(kind(tree))} {_compact(body)})" if isinstance(tree, dict) else f"({snake(tree)})")]


def literals(tree: Tree) -> list[str]:
    """How each literal is typed, in order: ``Dyn`` where Polars chooses a type, ``Scalar`` where it has one."""
    found = []
    for node in nodes(tree, children):
        if kind(node) not in ("Column", "BinaryExpr", "Ternary", "Alias"):
            found += _LITERALS.findall(json.dumps(with_children(node, [None] * len(children(node)))))
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
    if depth(tree) > DEEPEST:  # to build it would raise an error that shows it
        return f"{snake(kind(tree))}({', '.join(inputs)})"
    return _shown(build(tree))


def _call(head: str, inputs: list[Tree], *more: str) -> list[tuple[bool, Any]]:
    pieces: list[tuple[bool, Any]] = [(False, f"({head}")]
    for each in inputs:
        pieces += [(False, " "), (True, each)]
    return [*pieces, (False, "".join(f" {each}" for each in more) + ")")]


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


# -- reading ----------------------------------------------------------------------------------------------------------


def _loaded(text: str) -> Tree:
    """A JSON text as Python's values, however deep it is."""
    try:
        return json.loads(text)
    except RecursionError:
        pass
    outer: list[list[Any]] = [[]]  # the values so far, of each bracket that is open
    for token in _TOKENS.findall(text):
        if token in "{[":
            outer.append([])
        elif token in "}]":
            values = outer.pop()
            outer[-1].append(dict(zip(values[::2], values[1::2], strict=True)) if token == "}" else values)
        else:
            outer[-1].append(json.loads(token))
    return outer[0][0]


def _with_shared(tree: Tree) -> Tree:
    """The tree with the parts that :func:`share` holds in all places that name them."""
    values: dict[str, Tree] = {}

    def change(node: Tree) -> Tree:
        match node:
            case {"Alias": [value, str(name)]} if name.startswith("="):
                values[name] = value
                return value
            case {"Field": [str(name)]} if name in values:
                return values[name]
            case {"Function": {"input": [{"StructEval": {"evaluation": [body]}}], "function": function}} if (
                function == {"StructExpr": {"FieldByName": "="}}
            ):
                return body
        return node

    return rewrite(tree, change)


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
