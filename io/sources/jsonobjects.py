"""JSON objects one by one: what is wrong with a line that pyarrow refuses, and which fields a line has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ddcore.base.schema import Type, parse_type
from ddcore.text.wording import shown_value

TEXTS = ("string", "date", "timestamp", "binary", "time", "uuid", "interval")  # the types whose values are text in JSON
_NUMBERS = ("int64", "float64")
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
_WORDS = ("true", "false", "null", "-")
_NUMBER = re.compile(r"\.|[eE][+-]?")  # what has to go on behind the digits of a number
_ESCAPE = re.compile(r"u?[0-9A-Fa-f]{0,4}")
CUT = "the file may have been cut off: copy it again; or find and fix the line at the source"
_FIX = "fix the line at the source"

Tree = Mapping[str, "Type | Tree"]  # the types of fields, by the steps of their paths


class Number(str):
    """A number as it is written, with all of its digits."""


class Object(dict[str, Any]):
    """An object; ``twice`` are the keys that occur more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.twice = {key for key in keys if keys.count(key) > 1} if len(keys) > len(self) else set[str]()


class Misfit(NamedTuple):
    """The first part of an object that is not of its type: its path, a clause, a hint."""

    path: str
    what: str
    hint: str


def parse_object(text: str) -> Object:
    """The object that is all of a text. ValueError, with a clause after "is", for anything else."""
    try:
        value = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Object)
    except json.JSONDecodeError as error:  # its own line number is that of a text of one line
        if _is_cut(text, error):
            raise ValueError("not JSON: it is cut off before its end") from error
        raise ValueError(f"not JSON: {error.msg} at character {error.colno}") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, Object):
        raise ValueError(f"{_kind_of(value)}, not an object")
    return value


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether a text is wrong only because it ends: inside of a string, of a word, or where something has to follow."""
    rest = text[error.pos :].strip()
    if error.msg.startswith("Expecting"):
        return any(word.startswith(rest) for word in _WORDS) or _NUMBER.fullmatch(rest) is not None
    return error.msg.startswith("Unterminated string") or _ESCAPE.fullmatch(rest) is not None


def value_at(value: dict[str, Any], path: str) -> Any:
    """The field of this name, or the one at the steps of this path. KeyError where there is none."""
    if path in value:
        return value[path]
    inside: Any = value
    for step in path.split("."):
        if not isinstance(inside, dict):
            raise KeyError(path)
        inside = inside[step]
    return inside


def kind_of(value: Any) -> Type | None:
    """The type of a plain value: int64, bool, else text; None for null."""
    if value is None:
        return None
    is_whole = isinstance(value, Number) and re.fullmatch("-?[0-9]{1,18}", value)
    return parse_type("bool" if isinstance(value, bool) else "int64" if is_whole else "string")


def first_misfit(value: Object, tree: Tree) -> Misfit | None:
    """The first part of an object that is not of its type; None where the types say nothing against it."""
    return next(_misfits_of_fields(value, tree, ""), None)


def _misfits(value: Any, node: Type | Tree, path: str) -> Iterator[Misfit]:
    if value is None:
        return
    if not isinstance(node, Type):
        yield from _misfits_of_fields(value, node, path)
    elif node.name == "map":
        yield from _misfits_of_map(value, node.fields[1][1], path)
    elif node.fields:
        yield from _misfits_of_fields(value, dict(node.fields), path)
    elif node.element is None:
        yield from _misfits_of_value(value, node, path)
    elif isinstance(value, list):
        for one in value:
            yield from _misfits(one, node.element, f"{path}[]")
    else:
        yield _another_kind(value, str(node), path)


def _misfits_of_fields(value: Any, fields: Tree, path: str) -> Iterator[Misfit]:
    if not isinstance(value, Object):
        yield _another_kind(value, "a struct", path)
        return
    for name, node in fields.items():
        below = f"{path}.{name}" if path else name
        if name in value.twice:
            yield Misfit(below, "the key occurs twice in one object", _FIX)
        yield from _misfits(value.get(name), node, below)


def _misfits_of_map(value: Any, kind: Type, path: str) -> Iterator[Misfit]:
    if not isinstance(value, Object):
        yield _another_kind(value, "a map", path)
        return
    for name in value.twice:
        yield Misfit(f"{path}.{name}", "the key occurs twice in one object", _FIX)
    for name, one in value.items():
        yield from _misfits(one, kind, f"{path}.{name}")


def written(value: Any) -> str:
    """A parsed value as JSON again, with all digits of its numbers."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name)}:{written(one)}' for name, one in value.items())}}}"
    return f"[{','.join(map(written, value))}]" if isinstance(value, list) else json.dumps(value)


def _misfits_of_value(value: Any, kind: Type, path: str) -> Iterator[Misfit]:
    is_number, is_text = isinstance(value, Number), isinstance(value, str) and not isinstance(value, Number)
    fits = is_number or is_text if kind.name == "decimal" else is_number if kind.name in _NUMBERS else is_text
    if isinstance(value, bool) if kind.name == "bool" else fits:
        if problem := _problem(str(value), kind):
            yield Misfit(path, f"{_shown(value)} {problem}", _FIX)
    else:
        yield _another_kind(value, str(kind), path)


def _problem(text: str, kind: Type) -> str | None:
    """What is wrong with a value of the right kind, if anything."""
    if kind.name == "int64":
        if re.fullmatch("-?[0-9]+", text) is None:
            return "is not a whole number"
        return None if len(text) < 21 and -(2**63) <= int(text) < 2**63 else "does not fit into int64"
    if kind.name == "float64":
        return "does not fit into float64" if abs(float(text)) == float("inf") and "nf" not in text else None
    if kind.name == "decimal":
        return None if _is_decimal(text, kind) else f"is not a {kind}"
    return "has half of a surrogate pair" if re.search("[\ud800-\udfff]", text) else None


def _is_decimal(text: str, kind: Type) -> bool:
    from decimal import Decimal, InvalidOperation

    try:
        _, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return False
    if not isinstance(exponent, int) or text.strip() != text:
        return False
    written = "".join(map(str, digits)).lstrip("0")
    places = exponent + len(written) - len(written.rstrip("0"))  # zeros at the end are no digits
    return not written or (-places <= kind.scale and len(written) + exponent <= kind.precision - kind.scale)


def _another_kind(value: Any, declared: str, path: str) -> Misfit:
    quotes = isinstance(value, Number) and declared in TEXTS
    hint = "write it in quotes at the source" if quotes else _FIX
    return Misfit(path, f"{_shown(value)} is {_kind_of(value)}, but the input declares {declared}", hint)


def _kind_of(value: object) -> str:
    if isinstance(value, Number):
        return "a number"
    return next(name for kind, name in _KINDS.items() if isinstance(value, kind))


def _shown(value: object) -> str:
    return shown_value(value).strip("'") if isinstance(value, Number) else shown_value(value)
