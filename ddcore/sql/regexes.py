"""Regular expressions of Java, which Spark has, and of RE2, which DuckDB has, as the engine's own read them.

All three take the first alternative that matches. What another engine reads otherwise is written so that it means the
same, and refused where that cannot be done.
"""

from __future__ import annotations

import re

import polars as pl
from sqlglot import exp

from ddcore.base.schema import parse_type
from ddcore.sql import zeros
from ddcore.sql.types import BOOL, TEXT
from ddcore.sql.values import Rule, Value, Values, shared

JAVA, RE2, POSTGRES = "Java", "RE2", "PostgreSQL"
_PART = re.compile(r"\\[pP]\{\w+\}|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^]])*\]|\(\?[^:)]*[:)]?|[*+?}]\+|.", re.DOTALL)
_CLASS_PART = re.compile(r"\\[pP]\{\w+\}|\\.|\[:\w+:\]|.", re.DOTALL)
_SPACES = {JAVA: r" \t\n\x0B\f\r", RE2: r" \t\n\f\r"}
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
"""Java's ``$``, before a last end of a line, too."""
_NO_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_SAME = set("tnrfabAz") | set(r"\.^$|?*+()[]{}-/ '\"_,:;=!<>&%#@~`")
"""What means the same behind a backslash."""


def _refuse(values: Values, node: exp.Expr, part: str) -> None:
    hint = "docs/sql.md says which patterns mean the same in the engine"
    values.source.refuse(node, f"{part} in a regular expression", hint)


def _shorthand(letter: str, kind: str) -> str | None:
    letters = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACES[kind]}.get(letter.lower())
    return None if letters is None else f"{'^' if letter.isupper() else ''}{letters}"


def _in_class(values: Values, node: exp.Expr, text: str, kind: str) -> str:
    """A class in brackets."""
    begin = 2 if text[1:2] == "^" else 1
    inner = text[begin:-1]
    result = []
    for number, part in enumerate(_CLASS_PART.findall(inner)):
        letters = _shorthand(part[1], kind) if part[0] == "\\" and len(part) == 2 else None
        if letters and letters[0] != "^":
            result.append(letters)
        elif (
            letters
            or (part in ("[", "&") and kind == JAVA)
            or (part[0] == "\\" and not _is_same(part))
            or (part[:2] == "[:" and kind == JAVA)
        ):
            _refuse(values, node, part)
        else:
            result.append(rf"\{part}" if part in "[&~" or (part == "]" and number == 0) else part)
    return f"{text[:begin]}{''.join(result)}]"


def _is_same(part: str) -> bool:
    if part[1] in "pP":
        return re.fullmatch(r"\\[pP]\{[LMNPSZC][a-z]?\}", part) is not None
    return part[1] in _SAME and part[1] != "b"


def _translated(values: Values, node: exp.Expr, pattern: exp.Expr | None, kind: str) -> tuple[str, bool]:
    """The pattern as the engine reads it, and whether Java's ``$`` stood at its end."""
    text = values.of(pattern).literal if pattern is not None else None
    if not isinstance(text, str):
        values.source.refuse(node, "a regular expression that is no literal", "LIKE takes patterns of columns")
    parts, ends = _PART.findall(text), False
    if kind == JAVA and parts[-1:] == ["$"]:
        parts, ends = parts[:-1], True
    result = []
    for part in parts:
        if part[0] == "[" and len(part) > 1:
            result.append(_in_class(values, node, part, kind))
        elif part[0] == "\\" and len(part) > 1:
            letters = _shorthand(part[1], kind)
            if not letters and part not in (r"\b", r"\B") and not _is_same(part):
                _refuse(values, node, part)
            bound = f"(?-u:{part})" if kind == RE2 and part in (r"\b", r"\B") else part
            result.append(f"[{letters}]" if letters else bound)
        elif (part[:2] == "(?" and part not in ("(?:", "(?i)")) or (len(part) == 2 and part[1] == "+"):
            _refuse(values, node, part)
        elif part == "$" and kind == JAVA:
            _refuse(values, node, "$ before the end")
        else:
            result.append(_NO_END if part == "." and kind == JAVA else part)
    regex = "".join(result)
    check(values, node, regex, text)
    if ends and re.search(r"(?<!\\)\|", text):
        _refuse(values, node, "$ behind an alternative")
    return regex, ends


def check(values: Values, node: exp.Expr, regex: str, text: str) -> None:
    """Raises ProgramError where the engine cannot read a regular expression, which is written as ``text``."""
    try:
        pl.select(pl.lit("").str.contains(regex))
    except pl.exceptions.ComputeError:
        raise values.source.error(
            node, f"{text!r} is no regular expression", "see its parentheses and braces"
        ) from None


def split(values: Values, node: exp.Expr, text: Value, regex: str, hint: str) -> Value:
    """A text between the matches of a pattern. Raises ProgramError for one that matches an empty text."""
    if pl.select(pl.lit("").str.contains(f"^(?:{regex})$")).item():
        values.source.refuse(node, "splitting at a pattern that matches an empty text", hint)
    return Value(text.expr.str.split(regex, literal=False), parse_type("list[string]"), node)


def translated(values: Values, node: exp.Expr, pattern: exp.Expr, kind: str) -> tuple[str, int]:
    """A pattern whose matches are taken, as the engine reads it, and how many groups it has."""
    regex, ends = _translated(values, node, pattern, kind)
    if ends:
        _refuse(values, node, "$ at the end")
    return regex, _groups(regex)


_SAFE = r"""(?s)\\[dwsDWS.^$|?*+()\[\]{}\\/-]|\[\^?(?:[\w ,.;:@%#/+-]|\\[dws.])+\]|\(\?[:i]|[^\\\[\]]"""
"""A part of a pattern that may come from a column."""


def of_rows(pattern: pl.Expr, kind: str) -> pl.Expr:
    """Patterns that are values of rows, as the engine reads them. A row fails whose pattern has a part that engines may
    read otherwise: a pattern that is a literal has more. ``pattern`` is named several times.
    """
    part = pl.element()
    new = pl.when(part == "\\d").then(pl.lit("[0-9]")).when(part == "\\D").then(pl.lit("[^0-9]"))
    if kind != POSTGRES:
        for name in "wWsS":
            new = new.when(part == f"\\{name}").then(pl.lit(f"[{_shorthand(name, kind)}]"))
        inside = part.str.replace_all(r"\d", "0-9", literal=True).str.replace_all(r"\w", "0-9A-Za-z_", literal=True)
        inside = inside.str.replace_all(r"\s", _SPACES[kind], literal=True)
    else:
        inside = part.str.replace_all(r"\d", "0-9", literal=True)
    new = new.when(part.str.starts_with("[")).then(inside)
    if kind == JAVA:
        new = new.when(part == ".").then(pl.lit(_NO_END))
    parts = pattern.str.extract_all(_SAFE)
    wrong = (parts.list.join("") != pattern) | pattern.str.contains(r"[*+?}]\+|\(\?[^:i]|\(\?i[^)]")
    if kind == JAVA:
        wrong |= pattern.str.contains("$", literal=True)
    failed = zeros.failing_where(wrong, "a regular expression of a column has plain parts only: write it as a literal")
    body = pl.when(failed == 0).then(parts).list.eval(new.otherwise(part)).list.join("")
    return pl.lit("(?s)") + body if kind == POSTGRES else body


def matched_by_rows(values: Values, node: exp.Expr, kind: str, form: str = "{}") -> Value | None:
    """Whether a text matches the pattern of its row; None where the pattern is a literal. ``form``: around it."""
    pattern = values.peek(node.expression)
    if pattern.literal is not None or pattern.type != TEXT:
        return None
    values.of(node.expression)
    text = values.require(values.of(node.this), "string").expr
    before, behind = form.split("{}")
    regex = pl.lit(before) + shared([pattern], lambda one: of_rows(one.expr, kind)) + pl.lit(behind)
    return Value(text.str.contains(regex), BOOL, node)


def match(kind: str, *, whole: bool = False) -> Rule:
    """The rule of whether a pattern matches a part of a text, or all of it."""

    def rule(values: Values, node: exp.Func) -> Value:
        found = None if node.args.get("flag") else matched_by_rows(values, node, kind, r"\A(?:{})\z" if whole else "{}")
        if found is not None:
            return found
        text = values.require(values.of(node.this), "string").expr
        regex, ends = _translated(values, node, node.expression, kind)
        if whole:
            regex = rf"\A(?:{regex})\z"
        elif ends:
            regex = f"(?:{regex}){_END}"
        return Value(text.str.contains(regex), BOOL, node)

    return rule


def _extracted(values: Values, node: exp.Expr, text: pl.Expr, group: int, kind: str) -> pl.Expr:
    """What a group of the first match of a function's pattern matched, 0 for all of it: null where nothing did."""
    regex, ends = _translated(values, node, node.expression, kind)
    if not 0 <= group <= _groups(regex):
        raise values.source.error(
            node, f"the pattern has no group {group}", "groups are counted from 1, 0 is all of it"
        )
    if ends:
        return text.str.extract(f"({regex}){_END}", group + 1)
    return text.str.extract(regex, group)


def extraction(kind: str, first: int) -> Rule:
    """The rule of ``regexp_extract``: the group ``first`` where none is named; empty where nothing matches."""

    def rule(values: Values, node: exp.RegexpExtract) -> Value:
        text = values.require(values.of(node.this), "string")
        group = values.of(node.args["group"]).literal if node.args.get("group") else first
        if not isinstance(group, int):
            values.source.refuse(node, "regexp_extract() of a group that is no literal")

        def part(text: Value) -> pl.Expr:
            taken = _extracted(values, node, text.expr, group, kind)
            return pl.when(text.expr.is_not_null()).then(taken.fill_null(""))

        return Value(shared([text], part), TEXT, node)

    return rule


def _groups(regex: str) -> int:
    return sum(part == "(" for part in _PART.findall(regex))


def replaced(values: Values, node: exp.RegexpReplace, kind: str, *, every: bool, flags: str = "") -> pl.Expr:
    """The text with other text in place of the first match or of every one."""
    text = values.require(values.of(node.this), "string").expr
    pattern, new = node.expression, node.args["replacement"]
    replacement = values.of(new).literal
    if not isinstance(replacement, str):
        values.source.refuse(node, "regexp_replace() by text that is no literal")
    regex, ends = _translated(values, node, pattern, kind)
    count = _groups(regex)
    named = _of_java(values, node, replacement, count) if kind == JAVA else _of_re2(values, node, replacement, count)
    regex = f"(?{flags}){regex}" if flags else regex
    if ends:
        regex, named = f"(?:{regex})({_END.removesuffix(chr(92) + 'z')})" + r"\z", f"{named}${{{count + 1}}}"
    return (text.str.replace_all if every else text.str.replace)(regex, named)


def _of_java(values: Values, node: exp.Expr, text: str, count: int) -> str:
    result = []
    for part in re.findall(r"\\.|\$\d+|.", text, re.DOTALL):
        if part[0] == "$":
            digits = part[1:]
            while len(digits) > 1 and int(digits) > count:
                digits = digits[:-1]
            if not digits or int(digits) > count:
                raise values.source.error(node, f"the pattern has no group {part}", r"a dollar sign itself is \\$")
            result.append(f"${{{digits}}}{part[1 + len(digits) :]}")
        else:
            result.append((part[1] if part[0] == "\\" and len(part) == 2 else part).replace("$", "$$"))
    return "".join(result)


def _of_re2(values: Values, node: exp.Expr, text: str, count: int) -> str:
    result = []
    for part in re.findall(r"\\.|.", text, re.DOTALL):
        if part[0] == "\\" and len(part) == 2:
            if (part[1].isdigit() and int(part[1]) > count) or not (part[1].isdigit() or part[1] == "\\"):
                raise values.source.error(
                    node, f"{part} in a replacement", r"a part of the match is \1, a backslash \\"
                )
            result.append(f"${{{part[1]}}}" if part[1].isdigit() else "\\")
        else:
            result.append(part.replace("$", "$$"))
    return "".join(result)
