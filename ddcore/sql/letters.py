"""Codes of letters, digits to other bases, and text as bytes, in SQL."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.expressions import hashes
from ddcore.sql import zeros
from ddcore.sql.types import BINARY, INT, TEXT
from ddcore.sql.values import Named, Rule, Value, Values, function, shared

_MOST_CODE = 0x10FFFF


def _bytes_of(text: pl.Expr) -> pl.Expr:
    """The bytes of the first letter as one whole number."""
    return text.str.head(1).str.encode("hex").str.to_integer(base=16, dtype=pl.Int64)


def code(text: pl.Expr) -> pl.Expr:
    """The code of the first letter in Unicode, 0 of an empty text. ``text`` is named several times.

    UTF-8 keeps six bits of the code in each byte behind the first.
    """
    empty = text == ""
    number = _bytes_of(pl.when(~empty).then(text))
    tail = number % 64
    two = (number // 256) % 32 * 64 + tail
    three = (number // 65_536) % 16 * 4_096 + (number // 256) % 64 * 64 + tail
    four = (number // 2**24) % 8 * 2**18 + (number // 65_536) % 64 * 4_096 + (number // 256) % 64 * 64 + tail
    several = pl.when(number < 2**16).then(two).when(number < 2**24).then(three).otherwise(four)
    return pl.when(empty).then(0).when(number < 128).then(number).otherwise(several)


def letter(number: pl.Expr) -> pl.Expr:
    """The letter with a code; the row fails for a number that is none, and for 0. ``number`` is named several times."""
    tail = 128 + number % 64
    two = (192 + number // 64) * 256 + tail
    three = (224 + number // 4_096) * 65_536 + (128 + number // 64 % 64) * 256 + tail
    four = (240 + number // 2**18) * 2**24 + (128 + number // 4_096 % 64) * 65_536 + (128 + number // 64 % 64) * 256
    many = pl.when(number < 65_536).then(three).otherwise(four + tail)
    coded = pl.when(number < 128).then(number).when(number < 2_048).then(two).otherwise(many)
    pairs = pl.when(number < 128).then(1).when(number < 2_048).then(2).when(number < 65_536).then(3).otherwise(4)
    is_none = (number < 1) | (number > _MOST_CODE) | number.is_between(0xD800, 0xDFFF)
    coded = coded + zeros.failing_where(is_none, "is no code of a letter")
    return _digits(coded, 16, 8).str.tail(pairs * 2).str.decode("hex").cast(pl.String)


def _digits(number: pl.Expr, base: int, count: int) -> pl.Expr:
    """The last digits of a whole number to a base, with zeros before them; those of two's complement below 0."""
    names = pl.lit("0123456789ABCDEF")
    positions = [number // base**position % base for position in range(count - 1, -1, -1)]
    return pl.concat_str([names.str.slice(position, 1) for position in positions])


def _without_zeros(digits: pl.Expr) -> pl.Expr:
    text = digits.str.strip_chars_start("0")
    return pl.when(text == "").then(pl.lit("0")).otherwise(text)


def hexadecimal(number: pl.Expr) -> pl.Expr:
    """A whole number in hexadecimal digits: 64 bits of two's complement below 0."""
    return _without_zeros(_digits(number, 16, 16))


def binary_digits(number: pl.Expr) -> pl.Expr:
    """A whole number in binary digits: 64 of two's complement below 0. They are those of its hexadecimal ones."""
    words = {f"{digit:X}": f"{digit:04b}" for digit in range(16)}
    return _without_zeros(_digits(number, 16, 16).str.replace_many([*words], [*words.values()]))


def digits_of_bytes(text: pl.Expr) -> pl.Expr:
    """The bytes of a text in hexadecimal digits."""
    return text.str.encode("hex").str.to_uppercase()


def digits_of(values: Values, node: exp.Hex) -> Value:
    """The digits of a whole number, or those of the bytes of a text."""
    value = values.of(node.this)
    if value.type == INT:
        return Value(shared([value], lambda n: hexadecimal(n.expr)), TEXT, node)
    return Value(digits_of_bytes(values.require(value, "string").expr), TEXT, node)


def _in_form(values: Values, node: exp.Encode | exp.Decode) -> Value:
    """``encode(bytes, 'hex')`` and ``decode(text, 'hex')``."""
    to_text = isinstance(node, exp.Encode)
    value = values.require(values.of(node.this), "binary" if to_text else "string")
    form = values.of(node.args["charset"]).literal
    if form not in ("hex", "base64"):
        what = f"{'encode() in' if to_text else 'decode() of'} another form than 'hex' and 'base64'"
        values.source.refuse(node, what)
    if not to_text:
        return Value(value.expr.str.decode(form), BINARY, node)
    text = value.expr.bin.encode(form)
    return Value(text if form == "hex" else _in_lines(text), TEXT, node)


def _in_lines(text: pl.Expr) -> pl.Expr:
    """PostgreSQL ends lines of base64 behind 76 letters."""
    return text.str.replace_all("(.{76})", "${1}\n").str.strip_chars_end("\n")


def _from_text(values: Values, node: exp.Expr) -> pl.Expr | None:
    """The text whose bytes a node is: ``x::bytea`` and ``convert_to(x, 'UTF8')``; None for other bytes."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "convert_to":
        return values.require(values.of(node.expressions[0]), "string").expr
    if isinstance(node, exp.Cast) and values.peek(node.this).type == TEXT:
        return values.of(node).expr.cast(pl.String)
    return None


def _digest(values: Values, node: exp.SHA2Digest) -> Value:
    """``sha256(x::bytea)``."""
    bits, text = values.of(node.args["length"]).literal, _from_text(values, node.this.unnest())
    if text is None:
        hint = "sha256(x::bytea) and sha256(convert_to(x, 'UTF8')) are there"
        values.source.refuse(node, "a hash of bytes that are not those of a text", hint)
    return Value(hashes.of(f"sha2_{bits}")(text).str.decode("hex"), BINARY, node)


def _recoded(values: Values, node: exp.Expr, part: exp.Expr, *, to_bytes: bool) -> Value:
    """A text as its bytes in UTF-8, or the text that bytes are."""
    value = values.require(values.of(part), "string" if to_bytes else "binary")
    return Value(value.expr.cast(pl.Binary if to_bytes else pl.String), BINARY if to_bytes else TEXT, node)


def _converted(values: Values, node: exp.Anonymous) -> Value:
    """``convert_to(text, 'UTF8')`` and ``convert_from(bytes, 'UTF8')``."""
    part, encoding = node.expressions
    if str(values.of(encoding).literal).upper().replace("-", "") != "UTF8":
        values.source.refuse(node, "another encoding than 'UTF8'")
    return _recoded(values, node, part, to_bytes=node.name.lower() == "convert_to")


def in_charset(values: Values, node: exp.Encode | exp.Decode) -> Value:
    """``encode(text, 'UTF-8')`` and ``decode(bytes, 'UTF-8')`` of Spark."""
    if str(values.of(node.args["charset"]).literal).upper() not in ("UTF-8", "UTF8"):
        values.source.refuse(node, "another encoding than 'UTF-8'")
    return _recoded(values, node, node.this, to_bytes=isinstance(node, exp.Encode))


def as_literal(text: pl.Expr) -> pl.Expr:
    """A text as a literal of SQL."""
    has_backslash = text.str.contains("\\", literal=True)
    body = text.str.replace_all("'", "''", literal=True).str.replace_all("\\", "\\\\", literal=True)
    return pl.when(has_backslash).then(pl.lit(" E'") + body + pl.lit("'")).otherwise(pl.lit("'") + body + pl.lit("'"))


def url_encoded(safe: str, space: str) -> Callable[[pl.Expr], pl.Expr]:
    """Bytes of letters but the safe ones by their digits, ``space`` for a space."""

    def encoded(text: pl.Expr) -> pl.Expr:
        letter = pl.element()
        digits = letter.str.encode("hex").str.to_uppercase().str.replace_all("(..)", "%${1}")
        kept = letter.str.contains(f"^[{safe}]$")
        one = pl.when(kept).then(letter).when(letter == " ").then(pl.lit(space)).otherwise(digits)
        return text.str.extract_all("(?s).").list.eval(one).list.join("")

    return encoded


def url_decoded(plus: str) -> Callable[[pl.Expr], pl.Expr]:
    """``plus``: what a plus sign means."""

    def decoded(text: pl.Expr) -> pl.Expr:
        part = pl.element()
        digits = pl.when(part.str.len_chars() > 1).then(part.str.slice(1)).otherwise(part.str.encode("hex"))
        parts = text.str.replace_all("+", plus, literal=True).str.extract_all("(?s)%[0-9A-Fa-f]{2}|.")
        return parts.list.eval(digits).list.join("").str.decode("hex").cast(pl.String)

    return decoded


RULES: dict[type[exp.Expr], Rule] = {
    exp.Ascii: function(code, INT, "string", repeats=True),
    exp.Chr: function(letter, TEXT, "int64", repeats=True),
    exp.Hex: function(lambda n: hexadecimal(n).str.to_lowercase(), TEXT, "int64", repeats=True),
    **dict.fromkeys((exp.Encode, exp.Decode), _in_form),
    exp.SHA2Digest: _digest,
}


def _of_bits(bits: int) -> Rule:
    """``sha224``, which sqlglot does not know."""
    length = exp.Literal.number(bits)
    return lambda values, node: values.of(exp.SHA2Digest(this=node.expressions[0], length=length))


NAMED: dict[str, Named] = {
    "sha224": (1, _of_bits(224)),
    "sha384": (1, _of_bits(384)),
    "convert_to": (2, _converted),
    "convert_from": (2, _converted),
    "quote_literal": (1, function(as_literal, TEXT, "string", repeats=True)),
    "quote_nullable": (1, function(lambda x: as_literal(x).fill_null("NULL"), TEXT, "string", repeats=True)),
}
