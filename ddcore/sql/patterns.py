"""Regular expressions of SQL, as PostgreSQL has them: for each kind of sqlglot's nodes, the value it makes.

The engine's own take the first alternative that matches where PostgreSQL takes the longest. Whether a text matches is
the same; where a part of it is taken or replaced, alternatives and parts that take as little as they can are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type, parse_type
from ddcore.sql import regexes
from ddcore.sql.source import shown
from ddcore.sql.types import BOOL, INT, TEXT
from ddcore.sql.values import Named, Rule, Value, Values, shared

_FOREIGN = re.compile(r"\\[1-9AmMyYZ]|\(\?[=!<]|\[\[[.=]|\(\?[a-z]|\*\*\*")
"""What other regular expressions lack or read otherwise: references back, looking around, words' ends, options."""
_CLASSES = {
    "[:upper:]": r"\p{Lu}", "[:lower:]": r"\p{Ll}", "[:alpha:]": r"\p{Alphabetic}", "[:digit:]": "0-9",
    "[:alnum:]": r"\p{Alphabetic}\p{N}", "[:space:]": r"\s", "[:xdigit:]": "0-9A-Fa-f",
}  # fmt: skip
"""Classes of letters that are ASCII's in the engine's regular expressions, and all scripts' in PostgreSQL's."""
_CHOICES = re.compile(r"\||[*+?}]\?")
_GROUP = re.compile(r"(?<!\\)\((?!\?)")


def _pattern(values: Values, node: exp.Expr, pattern: exp.Expr, *, part: bool = False, flags: str = "") -> str:
    """The pattern as the engine reads it. ``part``: what it matches is taken out of the text."""
    text = values.of(pattern).literal
    if not isinstance(text, str):
        values.source.refuse(node, "a regular expression that is no literal", "LIKE takes patterns of columns")
    unescaped = text.replace(r"\\", "")
    if found := _FOREIGN.search(unescaped):
        values.source.refuse(node, f"{found[0]} in a regular expression")
    if part and (found := _CHOICES.search(re.sub(r"\\.|\[[^]]*\]", "", unescaped))):
        hint = "PostgreSQL takes the longest match: write a pattern of which only one match is possible"
        values.source.refuse(node, f"{found[0]} in a regular expression whose match is taken", hint)
    for name, letters in _CLASSES.items():
        text = text.replace(name, letters)
    if found := re.search(r"\[:[a-z]+:\]", text):
        values.source.refuse(node, f"{found[0]} in a regular expression")
    whole = f"(?{'i' if 'i' in flags else ''}s){re.sub(_DIGIT, _digits, text)}"
    regexes.check(values, node, whole, text)
    return whole


_DIGIT = re.compile(r"\[[^]]*\]|\\.", re.DOTALL)


def _digits(found: re.Match[str]) -> str:
    """\\d is 0 to 9 in PostgreSQL, and the digits of all scripts in the engine's regular expressions."""
    if found[0].startswith("["):
        return found[0].replace(r"\d", "0-9")
    return {r"\d": "[0-9]", r"\D": "[^0-9]"}.get(found[0], found[0])


def _flags(values: Values, node: exp.Expr, given: Any, allowed: str) -> str:
    flags = values.of(given).literal if given is not None else ""
    if not isinstance(flags, str) or set(flags) - set(allowed):
        values.source.refuse(node, f"flags of a regular expression that are not of these: {', '.join(allowed)}")
    return flags


def _matches(flags: str) -> Rule:
    def rule(values: Values, node: Any) -> Value:
        given = flags + _flags(values, node, node.args.get("flag"), "i")
        found = regexes.matched_by_rows(values, node, regexes.POSTGRES, "(?i){}" if given else "{}")
        if found is not None:
            return found
        text = values.require(values.of(node.this), "string").expr
        return Value(text.str.contains(_pattern(values, node, node.expression, flags=given)), BOOL, node)

    return rule


def _similar(values: Values, node: exp.SimilarTo) -> Value:
    text, pattern = values.require(values.of(node.this), "string").expr, values.of(node.expression).literal
    if not isinstance(pattern, str) or "\\" in pattern:
        values.source.refuse(node, "SIMILAR TO a pattern that is no literal, or has a backslash")
    regex = re.sub(r"[.^$]", r"\\\g<0>", pattern).replace("%", ".*").replace("_", ".")
    return Value(text.str.contains(f"(?s)^(?:{regex})$"), BOOL, node)


def _replaced(values: Values, node: exp.RegexpReplace) -> Value:
    text, new = values.require(values.of(node.this), "string").expr, values.of(node.args["replacement"]).literal
    if not isinstance(new, str):
        values.source.refuse(node, "regexp_replace() by text that is no literal")
    flags = _flags(values, node, node.args.get("modifiers"), "gi")
    pattern = _pattern(values, node, node.expression, part=True, flags=flags)
    named = re.sub(r"\\(.)", _reference, new.replace("$", "$$"))
    replace = text.str.replace_all if "g" in flags else text.str.replace
    return Value(replace(pattern, named), TEXT, node)


def _reference(found: re.Match[str]) -> str:
    """A part of what matched, in the replacement: \\1 and \\& in PostgreSQL."""
    if found[1] == "&":
        return "${0}"
    return f"${{{found[1]}}}" if found[1].isdigit() else found[1]


def _part(compute: Callable[[pl.Expr, str], pl.Expr], kind: Type) -> Rule:
    """What is computed of the parts of a text that match."""

    def rule(values: Values, node: exp.Func) -> Value:
        text, pattern = values.arguments(node, "string")[0].expr, _pattern(values, node, node.expression, part=True)
        return Value(compute(text, pattern), kind, node)

    return rule


def position_of(text: pl.Expr, regex: str) -> pl.Expr:
    """The number of the first letter of the first match, 0 where nothing matches."""
    before = text.str.extract(f"(?s)^(.*?)(?:{regex})", 1)
    return pl.when(text.is_not_null()).then((before.str.len_chars().cast(pl.Int64) + 1).fill_null(0))


def substring(values: Values, node: exp.Expr, text: Value, pattern: exp.Expr) -> Value:
    """``substring(text FROM pattern)``: what the first group matched, or all of it where there is none."""
    regex = _pattern(values, node, pattern, part=True)
    return Value(text.expr.str.extract(regex, 1 if _GROUP.search(regex[4:]) else 0), TEXT, node)


def _groups_of(values: Values, node: exp.Anonymous) -> Value:
    """``regexp_match``: what the groups of the first match matched, or all of it where there are none."""
    if len(node.expressions) not in (2, 3):
        raise values.source.error(
            node, f"{shown(node)}: regexp_match() takes 2 or 3 values", "regexp_match(a, 'x', 'i')"
        )
    text = values.require(values.of(node.expressions[0]), "string")
    flags = _flags(values, node, node.expressions[2] if node.expressions[2:] else None, "i")
    pattern = _pattern(values, node, node.expressions[1], part=True, flags=flags)
    count = len(_GROUP.findall(pattern[pattern.index(")") + 1 :]))

    def parts(text: Value) -> pl.Expr:
        found = [text.expr.str.extract(pattern, number) for number in (range(1, count + 1) if count else (0,))]
        return pl.when(text.expr.str.contains(pattern)).then(pl.concat_list(found))

    return Value(shared([text], parts), parse_type("list[string]"), node)


def _split(values: Values, node: exp.Anonymous) -> Value:
    """``regexp_split_to_array``."""
    some, pattern = node.expressions
    text = values.require(values.of(some), "string")
    return regexes.split(values, node, text, _pattern(values, node, pattern, part=True), "string_to_array(x, ',')")


RULES: dict[type[exp.Expr], Rule] = {
    exp.RegexpLike: _matches(""),
    exp.RegexpILike: _matches("i"),
    exp.SimilarTo: _similar,
    exp.RegexpReplace: _replaced,
    exp.RegexpSubstr: _part(lambda text, pattern: text.str.extract(pattern, 0), TEXT),
    exp.RegexpInstr: _part(position_of, INT),
    exp.RegexpCount: _part(lambda text, pattern: text.str.count_matches(pattern).cast(pl.Int64), INT),
}

NAMED: dict[str, Named] = {"regexp_match": (-1, _groups_of), "regexp_split_to_array": (2, _split)}
