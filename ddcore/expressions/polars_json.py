"""The door between Polars' expressions and our trees: the one module that knows how Polars writes an expression.

Polars has no public way to look into an expression. ``Expr.meta.serialize`` is public, but what it writes may change
with every release; so all that is known of it is here, and ``tests/test_polars_json.py`` says what a release changed.
What our language does not have is read as :class:`~ddcore.expressions.syntax.Foreign`, which
:mod:`ddcore.expressions.vocabulary` refuses.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.expressions import hashes, syntax, texts
from ddcore.expressions.syntax import Alias, Call, Cast, Choice, Column, Element, Eval, Foreign, Literal, Renamed, Tree

DEEPEST = 110
"""How many brackets deep the JSON of an expression may be: Polars reads 127, and options of functions need some."""
_LEAST_DEEP, _EACH_DEEP = 5, 3  # a node without children, and what one with some adds at most
_NUMBERS = count()  # of shared parts: those of two expressions that become one must differ
_TOKENS = re.compile(r'[][{}]|"(?:[^"\\]|\\.)*"|[^][{},:"\s]+')
_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_NULL_FLOATS = ('"Float":null', '"Float64":null')
_SQL_OPERATORS = {"Plus", "Minus", "Mul", "Div", "IntDiv", "Rem", "Eq", "EqMissing", "Lt", "LtEq", "Gt", "GtEq"}
_Json = Any
_LATEST: dict[int, tuple[pl.Expr, Tree]] = {}
"""Expressions by what Python calls their identity, which is theirs as long as they are here, and their trees."""
_MOST_KEPT = 4096


def read(expr: pl.Expr) -> Tree:
    """The tree of an expression. Raises ProgramError for one without a stable form, such as a Python function.

    Planning reads an expression for its columns, its type, its text and to make it ready to run, one soon after the
    other: the latest trees are kept.
    """
    known = _LATEST.get(id(expr))
    if known is not None and known[0] is expr:
        return known[1]
    tree = _read(expr)
    if len(_LATEST) >= _MOST_KEPT:
        _LATEST.clear()
    _LATEST[id(expr)] = expr, tree
    return tree


def _read(expr: pl.Expr) -> Tree:
    if expr.meta.is_column():  # most are, and a tenth of the time is enough for them
        return Column(expr.meta.output_name())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text = expr.meta.serialize(format="json")
    except Exception:  # Polars needs cloudpickle for Python functions, and says so in several ways
        raise ProgramError(
            f"the expression {_shown(expr)} has no text of its own: it calls a Python function",
            "use Polars' own functions, or flat_map(function, schema=...)",
        ) from None
    node = _loaded(text)
    if any(null in text for null in _NULL_FLOATS):
        _restore_non_finite(node, expr)
    return _Reader(has_shared='"StructEval"' in text).tree(node)


def build(tree: Tree) -> pl.Expr:
    """The expression that a tree stands for. Raises ProgramError for a tree deeper than :data:`DEEPEST`."""
    if is_deeper(tree, DEEPEST):
        raise too_deep(tree)
    return expression(lowered(tree))


def lowered(tree: Tree) -> str:
    """What :func:`expression` makes the expression of; equal for equal trees of one process."""
    return json.dumps(syntax.fold(tree, _json))


def expression(text: str) -> pl.Expr:
    """The expression of a tree that was lowered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pl.Expr.deserialize(io.StringIO(text), format="json")


def too_deep(tree: Tree) -> ProgramError:
    """The error for an expression that Polars cannot read."""
    return ProgramError(
        f"the expression {texts.display(tree)} is nested too deeply", "compute a part of it in a select() before"
    )


def depth(tree: Tree) -> int:
    """How many brackets deep the JSON of a tree is, at most."""
    return syntax.fold(tree, own_depth)


def is_deeper(tree: Tree, most: int) -> bool:
    """Whether the JSON of a tree is more brackets deep than this. Most trees have too few nodes for that."""
    nodes = syntax.every(tree)
    if _LEAST_DEEP + _EACH_DEEP * (len(nodes) - 1) <= most and not any(isinstance(node, Eval) for node in nodes):
        return False
    return depth(tree) > most


def own_depth(node: Tree, parts: list[int]) -> int:
    """How deep a node is, from the depths of its children."""
    if isinstance(node, Eval):
        parts = [*parts, depth(node.part) + (3 if node.whole else 0)]
    return max(parts) + (_EACH_DEEP if syntax.is_function(node) else 2) if parts else _LEAST_DEEP


# -- expressions that are written with Polars' own methods -------------------------------------------------------------


def applied(function: Callable[..., pl.Expr], *trees: Tree) -> Tree:
    """The tree of what a function makes of expressions, over these trees."""
    columns = {f"={number}": tree for number, tree in enumerate(trees)}
    body = read(function(*map(pl.col, columns)))
    return syntax.rewrite(body, lambda node: columns.get(node.name, node) if isinstance(node, Column) else node)


def share(values: Sequence[pl.Expr], body: Callable[..., pl.Expr]) -> pl.Expr:
    """What ``body`` makes of the values, each of which it may name any number of times.

    The expression holds each value once, and so does the tree that it is read as. Polars, too, evaluates it, but
    evaluates all branches of a choice in the body for all rows.
    """
    names = _new_names(values)
    return _bound(names, values, body(*(pl.field(name) for name in names)))


def called(name: str, values: Sequence[pl.Expr]) -> pl.Expr:
    """A function that Polars' expressions have no method for, by its name."""
    names = _new_names(values)
    return _bound(names, values, build(Call(name, tuple(Foreign("Field", [field], field) for field in names))))


def zipped(left: pl.Expr, right: pl.Expr, kinds: tuple[pl.DataType, pl.DataType]) -> pl.Expr:
    """Lists of the same length, with elements of these types, as one list of structs of a ``key`` and a ``value``.

    Polars has no function for it: both lists are put one behind the other, and the halves side by side.
    """
    nulls = [pl.lit(None, dtype=kind) for kind in kinds]
    keys = left.list.eval(pl.struct(key=pl.element(), value=nulls[1]))
    values = right.list.eval(pl.struct(key=nulls[0], value=pl.element()))
    return pl.concat_list([keys, values]).list.eval(_halves())


def _halves() -> pl.Expr:
    half = pl.len() // 2
    keys, values = (pl.element().struct.field(name) for name in ("key", "value"))
    return pl.struct(key=keys.slice(0, half), value=values.slice(half, half))


@lru_cache
def _halves_json() -> _Json:
    return json.loads(pl.col("").list.eval(_halves()).meta.serialize(format="json"))["Eval"]["evaluation"]


def _new_names(values: Sequence[pl.Expr]) -> list[str]:
    return [f"={next(_NUMBERS)}" for _ in values]


def _bound(names: Sequence[str], values: Sequence[pl.Expr], body: pl.Expr) -> pl.Expr:
    struct = pl.struct([value.alias(name) for name, value in zip(names, values, strict=True)])
    return struct.struct.with_fields(body.alias("=")).struct.field("=")


# -- options of functions ----------------------------------------------------------------------------------------------


_TYPE_OF: dict[str, Callable[[_Json], _Json]] = {
    "StringExpr.Strptime": lambda options: options[0], "StringExpr.ToInteger": lambda options: options["dtype"],
    "StringExpr.JsonDecode": lambda options: options, "BinaryExpr.Reinterpret": lambda options: options[0],
    "Range.IntRanges": lambda options: options["dtype"],
}  # fmt: skip


def result_type(call: Call) -> pl.DataType | None:
    """The type of the result that the options of a function name; None where they name none."""
    named = _TYPE_OF[call.name](call.options) if call.name in _TYPE_OF else None
    if isinstance(named, dict) and "Literal" in named:
        named = named["Literal"]
    return None if named is None else _dtype(json.dumps(named))


def time_format(call: Call) -> str | None:
    """The format by which a function reads times from text; None where it guesses."""
    text: str | None = call.options[1]["format"]
    return text


def time_unit(call: Tree) -> str:
    """The unit that a function gives times in."""
    assert isinstance(call, Call)
    return _UNITS[call.options]


@lru_cache(maxsize=1024)
def _dtype(text: str) -> pl.DataType:
    """A type from how Polars writes it."""
    null = {"Literal": {"Scalar": {"Null": "Null"}}}
    cast = {"Cast": {"expr": null, "dtype": {"Literal": json.loads(text)}, "options": "Strict"}}
    return pl.LazyFrame().select(expression(json.dumps(cast))).collect_schema().dtypes()[0]


@lru_cache(maxsize=1024)
def _dtype_json(dtype: pl.DataType) -> _Json:
    return json.loads(pl.lit(None).cast(dtype).meta.serialize(format="json"))["Cast"]["dtype"]


# -- from trees to JSON ------------------------------------------------------------------------------------------------


def _json(tree: Tree, parts: list[_Json]) -> _Json:  # noqa: PLR0911  (one case, one return)
    match tree:
        case Column():
            return {"Column": tree.name}
        case Literal():
            return _literal_json(tree)
        case Call() if syntax.is_operator(tree):
            return {"BinaryExpr": {"left": parts[0], "op": tree.name, "right": parts[1]}}
        case Call():
            return {"Function": {"input": parts, "function": _function_json(tree.name, tree.options)}}
        case Choice():
            return {"Ternary": dict(zip(("predicate", "truthy", "falsy"), parts, strict=True))}
        case Cast():
            return {"Cast": {"expr": parts[0], "dtype": _dtype_json(tree.dtype), "options": tree.mode}}
        case Alias():
            return {"Alias": [parts[0], tree.name]}
        case Renamed(_, None):
            return {"KeepName": parts[0]}
        case Renamed():
            return {"RenameAlias": {"expr": parts[0], "function": tree.rule}}
        case Eval():
            part = syntax.fold(tree.part, _json)
            body = {"expr": parts[0], "evaluation": _whole_json(tree, part), "variant": tree.variant}
            return {"Eval": body}
        case Foreign():
            return tree.kind if tree.body is None else {tree.kind: tree.body}
    return "Element"


def _literal_json(literal: Literal) -> _Json:
    value = literal.value
    if isinstance(value, float) and not float("-inf") < value < float("inf"):  # JSON has no number for it
        text = {"Literal": {"Scalar": {"String": str(value)}}}
        return {"Cast": {"expr": text, "dtype": {"Literal": "Float64"}, "options": "Strict"}}
    if isinstance(value, bytes):
        value = list(value)
    elif literal.dtype == "Datetime":
        value = [*value[:2], value[2] and {"inner": value[2]}]
    if literal.dtype == "Series":
        return {"Literal": {"Series": value}}
    return {"Literal": {"Scalar" if literal.is_typed else "Dyn": {literal.dtype: value}}}


def _function_json(name: str, options: Any) -> _Json:
    family, _, last = name.rpartition(".")
    if family == "Sql" and last in _SQL_OPERATORS:
        return {"Sql": {"Binary": last}}
    if family == "Digest":
        return _digest(last)
    body = last if options == () else {last: options}
    return {family: body} if family else body


@lru_cache
def _digest(symbol: str) -> _Json:
    """A hash as Polars writes it here: with the path of its library, so no fingerprint may have it."""
    return json.loads(hashes.of(symbol)(pl.col("")).meta.serialize(format="json"))["Function"]["function"]


def _whole_json(tree: Eval, part: _Json) -> _Json:
    match tree.whole:
        case "":
            return part
        case "Zip":
            return _halves_json()
        case "Filter":
            return {"Filter": {"input": tree.options, "by": part}}
        case "Unique" | "Reverse" | "Any" | "All":
            return {"Function": {"input": [part], "function": tree.options}}
        case "Item":
            return {"Agg": {"Item": tree.options | {"input": part}}}
    return {"Agg": {tree.whole: part}}


# -- from JSON to trees ------------------------------------------------------------------------------------------------


_INNER: dict[str, Callable[[Any], list[_Json]]] = {
    "BinaryExpr": lambda body: [body["left"], body["right"]],
    "Function": lambda body: list(body["input"]),
    "Ternary": lambda body: [body["predicate"], body["truthy"], body["falsy"]],
    "Alias": lambda body: [body[0]],
    "KeepName": lambda body: [body],
    "StructEval": lambda body: [body["expr"], *body["evaluation"]],
    **dict.fromkeys(("Cast", "RenameAlias", "Eval"), lambda body: [body["expr"]]),
}


def _inner(node: _Json) -> list[_Json]:
    if isinstance(node, str):
        return []
    kind, body = next(iter(node.items()))
    return _INNER[kind](body) if kind in _INNER else []


def _loaded(text: str) -> _Json:
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


class _Reader:
    """Reads JSON. ``has_shared``: whether parts may be shared, see :func:`share`; they are in all places that name
    them.
    """

    def __init__(self, *, has_shared: bool) -> None:
        self._has_shared = has_shared
        self._shared: dict[str, Tree] = {}

    def tree(self, node: _Json) -> Tree:
        """The tree of a node."""
        trees: dict[int, Tree] = {}
        for part in syntax.nodes(node, _inner):
            trees[id(part)] = self._tree(part, [trees[id(inner)] for inner in _inner(part)])
        return trees[id(node)]

    def _tree(self, node: _Json, parts: list[Tree]) -> Tree:  # noqa: PLR0911, PLR0912  (one case, one return)
        match node:
            case {"Column": str(name)}:
                return Column(name)
            case {"Literal": body}:
                return _literal(body) or _foreign(node)
            case {"BinaryExpr": {"op": str(name)}} if name in syntax.OPERATORS:
                return Call(name, tuple(parts))
            case {"Function": {"function": function}}:
                return self._call(node, function, parts)
            case {"Ternary": _}:
                return Choice(*parts)
            case {"Cast": {"dtype": {"Literal": dtype}, "options": str(mode)}}:
                return Cast(parts[0], _dtype(json.dumps(dtype)), mode)
            case {"Alias": [_, str(name)]}:
                return self._alias(parts[0], name)
            case {"KeepName": _}:
                return Renamed(parts[0], None)
            case {"RenameAlias": {"function": rule}}:
                return Renamed(parts[0], rule)
            case {"Eval": body}:
                return self._eval(body, parts[0])
            case {"Field": [str(name)]} if name in self._shared:
                return self._shared[name]
            case {"StructEval": {"evaluation": [_]}} if self._has_shared:
                return Foreign("StructEval", parts[1], "struct_eval")
            case {"NonFinite": str(text)}:
                return Literal("Float64", float(text))
            case "Element":
                return Element()
        return _foreign(node)

    def _alias(self, value: Tree, name: str) -> Tree:
        if not self._has_shared or not name.startswith("="):
            return Alias(value, name)
        self._shared[name] = value
        return value

    def _call(self, node: _Json, function: _Json, parts: list[Tree]) -> Tree:
        name, options = _named(function)
        match name, parts:
            case "StructExpr.FieldByName", [Foreign("StructEval", value)] if options == "=" and self._has_shared:
                bound: Tree = value
                return bound
            case "Boolean.IsIn" | "Sql.IsIn", [value, Literal("Series") as listed]:
                # Membership in a series is membership in a list of its values; Polars stores both alike.
                if name == "Sql.IsIn":  # its list comes as a series with one row
                    (values,) = syntax.values(listed)
                    return Call("Boolean.IsIn", (value, read(pl.lit(values.to_list(), pl.List(values.dtype)))), options)
                return Call(name, (value, listed._replace(dtype="List")), options)
        return Call(name, tuple(parts), options) if name else _foreign(node)

    def _eval(self, body: _Json, value: Tree) -> Tree:
        whole, options, part = _whole(body["evaluation"])
        return Eval(value, self.tree(part), whole, options, body["variant"])


def _named(function: _Json) -> tuple[str, Any]:
    """The qualified name of a function and its options; an empty name for what has none."""
    if isinstance(function, str):
        return function, ()
    if len(function) != 1:
        return "", ()
    family, rest = next(iter(function.items()))
    if family == "FfiPlugin" and rest["symbol"] in hashes.SYMBOLS and rest == _digest(rest["symbol"])[family]:
        return f"Digest.{rest['symbol']}", ()
    if family not in texts.FAMILIES:
        return family, rest
    if isinstance(rest, str):
        return f"{family}.{rest}", ()
    name, options = next(iter(rest.items()))
    return (f"Sql.{options}", ()) if (family, name) == ("Sql", "Binary") else (f"{family}.{name}", options)


def _literal(body: _Json) -> Literal | None:
    match body:
        case {"Series": packed}:
            return Literal("Series", bytes(packed))
        case {"Scalar": {"Binary": packed}}:
            return Literal("Binary", bytes(packed))
        case {"Scalar": {"List": packed}}:
            return Literal("List", bytes(packed))
        case {"Scalar": {"Datetime": [ticks, unit, zone]}}:
            return Literal("Datetime", (ticks, unit, zone and zone["inner"]))
        case {"Scalar": dict(value)} | {"Dyn": dict(value)} if len(value) == 1:
            return Literal(*next(iter(value.items())), is_typed="Scalar" in body)
    return None


def _whole(evaluation: _Json) -> tuple[str, Any, _Json]:  # noqa: PLR0911  (one case, one return)
    """The operation of an ``Eval`` on the whole list, what else Polars writes of it, and its part for each element."""
    if evaluation == _halves_json():
        return "Zip", (), "Element"
    match evaluation:
        case {"Filter": {"input": ({"Column": ""} | "Element") as elements, "by": by}}:
            return "Filter", elements, by
        case {"Function": {"input": [part], "function": {"Unique": _}}}:
            return "Unique", {"Unique": True}, part  # in the order of the list
        case {"Function": {"input": [part], "function": "Reverse"}}:
            return "Reverse", "Reverse", part
        case {"Function": {"input": [part], "function": {"Boolean": ({"Any": _} | {"All": _}) as how}}}:
            return next(iter(how)), {"Boolean": how}, part
        case {"Agg": {"Item": {"input": part, **options}}}:
            return "Item", options, part
        case {"Agg": {"First": part} | {"Last": part} | {"NUnique": part}}:
            return next(iter(evaluation["Agg"])), (), part
    return "", (), evaluation


def _foreign(node: _Json) -> Foreign:
    kind, body = (node, None) if isinstance(node, str) else next(iter(node.items()))
    try:
        shown = _shown(expression(json.dumps(node)))
    except Exception:  # too deep for Polars, or with an infinity
        shown = texts.snake(kind)
    return Foreign(kind, body, shown)


# -- floats that JSON cannot hold --------------------------------------------------------------------------------------


def _restore_non_finite(node: _Json, expr: pl.Expr) -> None:
    """Write ``{"NonFinite": text}`` for the floats that the JSON has null for, read from the expression itself."""
    match node:
        case {"Literal": {"Dyn": {"Float": None}} | {"Scalar": {"Float64": None}}}:
            node.clear()
            node["NonFinite"] = str(pl.select(expr).item())
            return
    inner = _inner(node)
    parts = _parts(node, expr) if inner and "Eval" not in node else []
    if len(parts) == len(inner):
        for child, part in zip(inner, parts, strict=True):
            _restore_non_finite(child, part)
    elif any(null in json.dumps(node, separators=(",", ":")) for null in _NULL_FLOATS):
        raise ProgramError(
            f"cannot read the infinity or NaN in {_shown(expr)}", "put it in a column with select() first"
        )


def _parts(node: _Json, expr: pl.Expr) -> list[pl.Expr]:
    """The inner expressions: Polars returns the last one first, but a predicate before its branches."""
    popped = expr.meta.pop()
    return [popped[0], popped[2], popped[1]] if "Ternary" in node else popped[::-1]


def _shown(expr: pl.Expr, limit: int = 80) -> str:
    shown = str(expr).replace("\n", " ")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
