"""JSON in SQL: parts of texts by their path, and texts that are built.

JSON is text here. What a path finds is text: strings without quotes, whole numbers of up to 18 digits as they are
written, objects and arrays without spaces between their parts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import polars as pl
from sqlglot import exp

from ddcore.sql import zeros
from ddcore.sql.casts import cast
from ddcore.sql.dialects import SPARKS
from ddcore.sql.source import DIALECT, given
from ddcore.sql.types import BOOL, DATE, INT, TEXT, TIMESTAMP
from ddcore.sql.values import Named, Rule, Value, Values, function, shared

_STEPS = exp.JSONExtract, exp.JSONBExtract
_JSON = (exp.DType.JSON, exp.DType.JSONB)
_HINT = "paths are literals: x -> 'a' ->> 'b', x #>> '{a,0}'"


def _keys(values: Values, node: exp.Expr) -> list[list[str]]:
    """The steps of one operator, each as the paths that it may mean."""
    path = node.expression
    if isinstance(path, exp.JSONPath):
        return [[_step(values, node, part)] for part in path.expressions if not isinstance(part, exp.JSONPathRoot)]
    text = values.of(path).literal
    if isinstance(text, int) and not isinstance(text, bool):
        return [[f"[{text}]"]]
    if not isinstance(text, str) or not re.fullmatch(r"\{[^{}\"\\]*\}", text):
        values.source.refuse(node, "this path of JSON", _HINT)
    parts = [part.strip() for part in text[1:-1].split(",")] if text != "{}" else []
    both = [[f"[{part}]"] if re.fullmatch(r"-?\d+", part) else [] for part in parts]
    return [[*numbers, _key(values, node, part)] for numbers, part in zip(both, parts, strict=True)]


def _step(values: Values, node: exp.Expr, part: exp.Expr) -> str:
    if isinstance(part, exp.JSONPathSubscript) and isinstance(part.this, int):
        return f"[{part.this}]"
    if isinstance(part, exp.JSONPathKey) and isinstance(part.this, str):
        return _key(values, node, part.this)
    values.source.refuse(node, "this path of JSON", _HINT)


def _key(values: Values, node: exp.Expr, name: str) -> str:
    if "'" in name or "\\" in name:
        values.source.refuse(node, "a quote or a backslash in a path of JSON")
    return f"['{name}']"


def scalar(*, fails: bool) -> Rule:
    """The rule of what a path finds, as text. ``fails``: text that is no JSON is an error; else it holds nothing."""

    def rule(values: Values, node: exp.Expr) -> Value:
        steps, inner = [_keys(values, node)], node.this
        while isinstance(inner := inner.unnest(), _STEPS):
            steps.append(_keys(values, inner))
            inner = inner.this
        paths = [*itertools.chain.from_iterable(reversed(steps))]
        text = values.require(values.of(inner), "string")
        wanted = ["".join(("$", *parts)) for parts in itertools.product(*paths)]
        if len(wanted) > _MOST_PATHS:
            values.source.refuse(node, "a path of JSON with so many numbers", "use -> with numbers and 'keys'")

        def found(text: Value) -> pl.Expr:
            parts = [text.expr.str.json_path_match(pl.lit(path)) for path in wanted]
            result = parts[0] if len(parts) == 1 else pl.coalesce(parts)
            return result if not fails else pl.when(_is_json(text.expr)).then(result)

        return Value(shared([text], found), TEXT, node)

    return rule


_MOST_PATHS = 8


def _is_json(text: pl.Expr) -> pl.Expr:
    """True for JSON, null for null; anything else fails."""
    return pl.when(text.is_not_null()).then(zeros.failing_where(~_is_readable(text), "this text is no JSON") == 0)


def _part_of_json(values: Values, node: exp.Expr) -> Value:
    values.source.refuse(node, "JSON as a value", "take text out of it: ->> or #>>, and cast that")


def _by_names(values: Values, node: exp.Anonymous) -> Value:
    """``jsonb_extract_path_text``, which sqlglot does not know."""
    text, *keys = node.expressions
    names = [values.of(key).literal for key in keys]
    if not all(isinstance(name, str) for name in names):
        values.source.refuse(node, "this path of JSON", _HINT)
    path = exp.Literal.string("{" + ",".join(map(str, names)) + "}")
    return RULES[exp.JSONBExtractScalar](values, exp.JSONBExtractScalar(this=text, expression=path))


_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}


def _type(text: pl.Expr) -> pl.Expr:
    """The type of a whole text."""
    first = text.str.strip_chars_start(" \t\r\n").str.head(1)
    return pl.when(_is_json(text)).then(first.replace_strict(_KINDS, default="number", return_dtype=pl.String))


_STRINGS, _INNERMOST, _MOST_BRACKETS = r'"(?:[^"\\]|\\.)*"', r"\[[^\[\]{}]*\]|\{[^\[\]{}]*\}", 16


def count_of_elements(text: pl.Expr) -> pl.Expr:
    """How many elements an array has: the commas of its text, when strings and brackets inside are gone. The row fails
    for what is no array, and for brackets deeper than 16.
    """
    is_array, number, is_deep = _elements(text)
    wrong = zeros.failing_where(~is_array | is_deep, "is no array of JSON that can be counted")
    return pl.when(_is_json(text)).then(number + wrong)


def count_or_null(text: pl.Expr) -> pl.Expr:
    """How many elements an array has, null for other texts."""
    is_array, number, is_deep = _elements(text)
    wrong = zeros.failing_where(is_array & is_deep, "has brackets that are too deep to count its elements")
    return pl.when(is_array & _is_readable(text) & (wrong == 0)).then(number)


def _elements(text: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Whether a text begins as an array, how many elements it has, and whether brackets are deeper than 16."""
    flat = text.str.strip_chars(" \t\r\n").str.replace_all(_STRINGS, "0")
    is_array = flat.str.starts_with("[")
    flat = flat.str.slice(1, (flat.str.len_chars().cast(pl.Int64) - 2).clip(lower_bound=0))
    for _ in range(_MOST_BRACKETS):
        flat = flat.str.replace_all(_INNERMOST, "0")
    number = flat.str.count_matches(",", literal=True).cast(pl.Int64) + 1
    is_empty = flat.str.strip_chars(" \t\r\n") == ""
    return is_array, pl.when(is_empty).then(0).otherwise(number), flat.str.contains(r"[\[{]")


# -- texts that are built ---------------------------------------------------------------------------------------------

_ESCAPES = {
    **{chr(code): f"\\u{code:04x}" for code in range(32)}, '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t",
}  # fmt: skip
_BUILDERS = (
    "to_json",
    "array_to_json",
    "to_jsonb",
    "json_build_object",
    "json_build_array",
    "jsonb_build_object",
    "jsonb_build_array",
)


def named(key: pl.Expr, text: pl.Expr, where: pl.Expr | None, *, binary: bool) -> pl.Expr:
    """A key and its value in an object, as PostgreSQL writes them; a row that ``where`` takes fails where the key is
    null. ``key`` is named several times.
    """
    wrong = zeros.failing_where(key.is_null() if where is None else key.is_null() & where, "a key of JSON is null")
    return _quoted(key) + wrong.cast(pl.String).str.head(0) + pl.lit(": " if binary else " : ") + text


def _quoted(text: pl.Expr) -> pl.Expr:
    return pl.lit('"') + text.str.replace_many([*_ESCAPES], [*_ESCAPES.values()]) + pl.lit('"')


AGGREGATES = exp.JSONArrayAgg, exp.JSONObjectAgg, exp.JSONBObjectAgg


def is_binary(node: exp.Expr) -> bool:
    """Whether an aggregate gives JSONB."""
    return isinstance(node, exp.JSONBObjectAgg) or bool(node.args.get("return_type"))


def _aggregate(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    return node


def is_json_node(node: exp.Expr) -> bool:
    """Whether a part is JSON in PostgreSQL: built here, or a cast."""
    if isinstance(_aggregate(node), AGGREGATES):
        return True
    if isinstance(node, exp.Coalesce):
        return is_json_node(node.this.unnest())
    if isinstance(node, exp.Case):
        return any(is_json_node(part.args["true"].unnest()) for part in node.args["ifs"])
    is_built = isinstance(node, exp.Anonymous) and node.name.lower() in _BUILDERS
    return is_built or (isinstance(node, exp.Cast) and node.to.this in _JSON)


def written(values: Values, node: exp.Expr, *, sorts: bool) -> pl.Expr:
    """A value as JSON, never null. ``sorts``: as JSONB, of which all parts are."""
    inner = node.unnest()
    if sorts and isinstance(inner, exp.Anonymous) and inner.name.lower() in _BUILDERS:
        node = exp.Anonymous(this=inner.name.lower().replace("json_", "jsonb_"), expressions=inner.expressions)
    elif sorts and is_json_node(inner) and not is_binary(_aggregate(inner)):
        values.source.refuse(node, "JSON in JSONB", "build it here, or use json_build_object and json_build_array")
    value = values.of(node)
    if value.type is None:
        return pl.lit("null")
    if is_json_node(node.unnest()):
        text = value.expr if value.type == TEXT else cast(values, value, TEXT, node).expr
        return text.fill_null("null")
    return _text(values, value, node, sorts=sorts).fill_null("null")


def _text(values: Values, value: Value, node: exp.Expr, *, sorts: bool) -> pl.Expr:
    """A value that is no JSON as JSON; null where it is null."""
    kind = value.type
    if kind in (INT, BOOL) or (kind is not None and kind.name == "decimal"):
        return cast(values, value, TEXT, node).expr
    if kind == TEXT:
        return _quoted(value.expr)
    if kind == DATE:
        return _quoted(value.expr.cast(pl.String))
    if kind == TIMESTAMP:
        return _quoted(cast(values, value, TEXT, node).expr.str.replace(" ", "T", literal=True))
    if kind is not None and kind.element is not None and kind.element in (INT, TEXT, BOOL):
        inner = _text(values, Value(pl.element(), kind.element, node), node, sorts=sorts)
        texts = value.expr.list.eval(inner.fill_null("null"))
        return pl.lit("[") + texts.list.join(", " if sorts else ",") + pl.lit("]")
    if kind is not None and kind.name == "struct" and values.source.dialect != DIALECT:
        whole = shared([value], lambda value: _of_fields(values, value, node))
        return pl.when(value.expr.is_not_null()).then(whole)
    values.source.refuse(node, f"JSON of {value.name}")


def _of_fields(values: Values, value: Value, node: exp.Expr) -> pl.Expr:
    """The fields of a struct, without spaces; Spark leaves nulls out."""
    assert value.type is not None
    parts = []
    for name, kind in value.type.fields:
        inner = _text(values, Value(value.expr.struct.field(name), kind, node), node, sorts=False)
        pair = pl.lit(f'"{_escaped(name)}":') + inner
        is_spark = values.source.dialect in SPARKS
        parts.append(pair if is_spark else pair.fill_null(f'"{_escaped(name)}":null'))
    return pl.lit("{") + pl.concat_str(parts, separator=",", ignore_nulls=True) + pl.lit("}")


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def compact_object(values: Values, node: exp.JSONObject) -> Value:
    """``json_object('a', x)`` of DuckDB."""
    pairs = [(values.of(pair.this).literal, pair.expression) for pair in node.expressions]
    if not all(isinstance(name, str) for name, _ in pairs):
        values.source.refuse(node, "keys of JSON that are no literals", "write 'key', value, 'key', value")
    parts = [pl.lit(f'"{_escaped(name)}":') + written(values, value, sorts=False) for name, value in pairs]
    return Value(_joined(parts, "{}", ","), TEXT, node)


def array(between: str) -> Rule:
    """The rule of an array of JSON, with this text between its elements."""

    def rule(values: Values, node: exp.JSONArray | exp.Anonymous) -> Value:
        sorts = node.name.lower().startswith("jsonb")
        parts = [written(values, value, sorts=sorts) for value in node.expressions]
        return Value(_joined(parts, "[]", between), TEXT, node)

    return rule


def whole(values: Values, node: exp.Expr) -> Value:
    """``to_json(x)``: null of null."""
    (inner,) = given(node)[:1]
    value = values.peek(inner)
    text = written(values, inner, sorts=node.name.lower() == "to_jsonb")
    return Value(pl.when(value.expr.is_not_null()).then(text), TEXT, node)


def is_valid(text: pl.Expr) -> pl.Expr:
    """``json_valid(text)``."""
    return pl.when(text.is_not_null()).then(_is_readable(text))


def _is_readable(text: pl.Expr) -> pl.Expr:
    return text.str.json_path_match(pl.lit("$")).is_not_null() | (text.str.strip_chars(" \t\r\n") == "null")


def _joined(parts: Sequence[pl.Expr], brackets: str, between: str) -> pl.Expr:
    body = [pl.concat_str(parts, separator=between)] if parts else []
    return pl.concat_str([pl.lit(brackets[0]), *body, pl.lit(brackets[1])])


def _object(values: Values, node: exp.Anonymous) -> Value:
    """``json`` keeps the order of its keys, ``jsonb`` has short ones first, and one of each."""
    names = [values.of(key).literal for key in node.expressions[::2]]
    if len(node.expressions) % 2 or not all(isinstance(name, str) for name in names):
        values.source.refuse(node, "keys of JSON that are no literals", "write 'key', value, 'key', value")
    pairs = list(zip(map(str, names), node.expressions[1::2], strict=True))
    behind, sorts = " : ", node.name.lower().startswith("jsonb")
    if sorts:
        pairs = sorted(dict(pairs).items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
        behind = ": "
    parts = [pl.lit(f'"{_escaped(name)}"{behind}') + written(values, value, sorts=sorts) for name, value in pairs]
    return Value(_joined(parts, "{}", ", "), TEXT, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.JSONExtractScalar: scalar(fails=True),
    exp.JSONBExtractScalar: scalar(fails=True),
    exp.JSONExtract: _part_of_json,
    exp.JSONBExtract: _part_of_json,
}


NAMED: dict[str, Named] = {
    "to_json": (1, whole),
    "to_jsonb": (1, whole),
    "array_to_json": (1, whole),
    "jsonb_extract_path_text": (-1, _by_names),
    **dict.fromkeys(
        ("json_array_length", "jsonb_array_length"), (1, function(count_of_elements, INT, "string", repeats=True))
    ),
    **dict.fromkeys(("json_typeof", "jsonb_typeof"), (1, function(_type, TEXT, "string", repeats=True))),
    "json_build_object": (-1, _object),
    "jsonb_build_object": (-1, _object),
    "json_build_array": (-1, array(", ")),
    "jsonb_build_array": (-1, array(", ")),
}
