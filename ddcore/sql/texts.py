"""Functions of text in SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.expressions import hashes, polars_json
from ddcore.sql import json_paths, letters, patterns, zeros
from ddcore.sql.casts import cast
from ddcore.sql.source import called, given, shown
from ddcore.sql.types import BOOL, FLOAT, INT, TEXT
from ddcore.sql.values import Named, Rule, Value, Values, as_type, function, null, shared


def _concatenated(values: Values, node: exp.DPipe) -> Value:
    sides = (node.this, node.expression)
    if any(json_paths.is_json_node(side.unnest()) for side in sides):
        values.source.refuse(node, "JSON || JSON", "cast it to text, or json_build_object('a', x, 'b', y)")
    parts = [values.of(side) for side in sides]
    texts = [text_of(values, part) for part in parts]
    return Value(texts[0] + texts[1], TEXT, node)


def _concat(values: Values, node: exp.Concat) -> Value:
    texts = [text_of(values, values.of(expression)) for expression in node.expressions]
    return Value(pl.concat_str(texts, ignore_nulls=True), TEXT, node)


def _joined(values: Values, node: exp.ConcatWs) -> Value:
    """Nulls are left out, with their separator."""
    separator, *others = node.expressions
    between = values.require(values.of(separator), "string")
    texts = [text_of(values, values.of(other)) for other in others]
    if between.literal is None and others:
        joined = shared([between], lambda between: pl.concat_list(texts).list.drop_nulls().list.join(between.expr))
        return Value(joined, TEXT, node)
    return Value(pl.concat_str(texts, separator=between.literal, ignore_nulls=True), TEXT, node)


def text_of(values: Values, value: Value) -> pl.Expr:
    """A value as text."""
    if value.type in (None, TEXT):
        return as_type(values.source, value, TEXT)
    return cast(values, value, TEXT, value.node).expr


def _substring(values: Values, node: exp.Substring) -> Value:
    whole, first = values.require(values.of(node.this), "string"), values.of(node.args["start"])
    if isinstance(first.literal, str) and not node.args.get("length"):
        return patterns.substring(values, node, whole, node.args["start"])
    text, start = whole.expr, values.require(first, "int64")
    length = node.args.get("length")
    count = values.require(values.of(length), "int64") if length is not None else None
    if start.literal is not None and (count is None or count.literal is not None):
        begin = int(start.literal) - 1
        if count is None:
            return Value(text.str.slice(max(begin, 0)), TEXT, node)
        if int(count.literal) < 0:
            raise values.source.error(node, f"the length is negative: {shown(node)}", "give a length of at least 0")
        end = begin + int(count.literal)
        return Value(text.str.slice(max(begin, 0), max(end - max(begin, 0), 0)), TEXT, node)
    if count is None:
        return Value(text.str.slice((start.expr - 1).clip(lower_bound=0)), TEXT, node)

    def part(start: Value, count: Value) -> pl.Expr:
        begin = (start.expr - 1).clip(lower_bound=0)
        length = (start.expr - 1 + count.expr - begin).clip(lower_bound=0)
        return pl.when(count.expr.is_not_null()).then(text.str.slice(begin, length)).otherwise(null(TEXT))

    return Value(shared([start, count], part), TEXT, node)


def _trim(values: Values, node: exp.Trim) -> Value:
    text = values.require(values.of(node.this), "string").expr
    given = values.of(node.expression) if node.expression is not None else Value(pl.lit(" "), TEXT, node, " ")
    letters = values.require(given, "string")
    side = str(node.args.get("position") or "BOTH").upper()
    strip = {"LEADING": text.str.strip_chars_start, "TRAILING": text.str.strip_chars_end}.get(
        side, text.str.strip_chars
    )
    if letters.literal is not None:
        return Value(strip(letters.literal), TEXT, node)
    there = shared([letters], lambda letters: pl.when(letters.expr.is_not_null()).then(strip(letters.expr)))
    return Value(there, TEXT, node)


def _position(values: Values, node: exp.StrPosition) -> Value:
    def found(text: Value, part: Value) -> pl.Expr:
        before = text.expr.str.splitn(part.expr, 2).struct.field("field_0").str.len_chars().cast(pl.Int64)
        there = text.expr.str.contains(part.expr, literal=True)
        return (
            pl.when(part.expr == "").then(_unless_null(1, text, part)).when(there).then(before + 1).when(~there).then(0)
        )

    return Value(shared(values.arguments(node, "string", "string", keys=("this", "substr")), found), INT, node)


def _unless_null(value: object, *others: Value) -> pl.Expr:
    """A constant, or null where one of the others is null."""
    there = pl.all_horizontal(other.expr.is_not_null() for other in others)
    return pl.when(there).then(pl.lit(value))


def _replace(values: Values, node: exp.Replace) -> Value:
    empty = Value(pl.lit(""), TEXT, node, "")
    parts = [values.require(values.of(node.args[key]), "string") if node.args.get(key) else empty for key in _REPLACED]

    def replaced(text: Value, old: Value, new: Value) -> pl.Expr:
        if old.literal and new.literal is not None:
            return text.expr.str.replace_all(old.literal, new.literal, literal=True)
        there = text.expr.str.split(old.expr).list.join(new.expr)
        return pl.when(old.expr == "").then(pl.when(new.expr.is_not_null()).then(text.expr)).otherwise(there)

    return Value(shared(parts, replaced), TEXT, node)


_REPLACED = ("this", "expression", "replacement")


def _padded(values: Values, node: exp.Pad) -> Value:
    """Text that is longer is cut at its end, on whichever side it would be filled."""
    fill = node.args.get("fill_pattern")
    parts = values.arguments(node, "string", "int64")
    parts.append(values.require(values.of(fill), "string") if fill is not None else Value(pl.lit(" "), TEXT, node, " "))

    def padded(text: Value, length: Value, fill: Value) -> pl.Expr:
        wanted = length.expr.clip(lower_bound=0)
        missing = (wanted - text.expr.str.len_chars().cast(pl.Int64)).clip(lower_bound=0)
        filling = repeated(fill.expr, missing).str.head(missing)
        cut = text.expr.str.head(wanted)
        return filling + cut if node.args.get("is_left") else cut + filling

    return Value(shared(parts, padded), TEXT, node)


def repeated(text: pl.Expr, times: pl.Expr) -> pl.Expr:
    """Null where one is null."""
    many = text.repeat_by(times.clip(lower_bound=0)).list.join("")
    return pl.when(text.is_not_null() & times.is_not_null()).then(many)


def field(*, whole: Callable[[pl.Expr, pl.Expr], pl.Expr] | None, zero_fails: bool) -> Rule:
    """The rule of ``split_part``: negative numbers count from the end, a field that is not there is empty.

    ``whole``: what a text and a number give where the separator is empty; None: each letter is a field. ``zero_fails``:
    whether there is an error for field 0, which else is empty, too.
    """

    def rule(values: Values, node: exp.SplitPart) -> Value:
        kinds = "string", "string", "int64"
        parts = values.arguments(node, *kinds, keys=("this", "delimiter", "part_index"))
        if zero_fails and parts[2].literal == 0:
            values.source.refuse(node, "split_part() of field 0", "fields are counted from 1, and from -1 at the end")

        def found(text: Value, separator: Value, number: Value) -> pl.Expr:
            position = number.expr - pl.when(number.expr > 0).then(1).otherwise(0)
            there = text.expr.str.split(separator.expr).list.get(position, null_on_oob=True).fill_null("")
            if not number.literal:
                there = pl.when(number.expr != 0).then(there).otherwise(pl.lit(""))
            if whole is not None and not separator.literal:
                there = pl.when(separator.expr == "").then(whole(text.expr, number.expr)).otherwise(there)
            known = _unless_null(True, text, separator, number)
            if zero_fails and number.literal is None:
                known &= zeros.failing_where(number.expr == 0, "there is no field 0") == 0
            return pl.when(known).then(there)

        return Value(shared(parts, found), TEXT, node)

    return rule


def whole_at_ends(text: pl.Expr, number: pl.Expr) -> pl.Expr:
    """A text without a separator is one field."""
    return pl.when(number.abs() == 1).then(text).otherwise(pl.lit(""))


def substring_from(begin: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    """The rule of ``substring`` of which ``begin`` says how many letters stand before it, from its start and the
    number of letters: fewer than none use up its length.
    """

    def part(text: Value, start: Value, count: Value) -> pl.Expr:
        first = begin(start.expr, text.expr.str.len_chars().cast(pl.Int64))
        inside = first.clip(lower_bound=0)
        known = start.expr.is_not_null() & count.expr.is_not_null()
        return pl.when(known).then(text.expr.str.slice(inside, (first + count.expr - inside).clip(lower_bound=0)))

    def rule(values: Values, node: exp.Substring) -> Value:
        text, start = values.arguments(node, "string", "int64", keys=("this", "start"))
        length, all_of_it = node.args.get("length"), Value(pl.lit(2**31), INT, node, 2**31)
        count = values.require(values.of(length), "int64") if length is not None else all_of_it
        return Value(shared([text, start, count], part), TEXT, node)

    return rule


def _translated(values: Values, node: exp.Translate) -> Value:
    text, *others = values.arguments(node, "string", "string", "string", keys=("this", "from_", "to"))
    old, new = (other.literal for other in others)
    if not isinstance(old, str) or not isinstance(new, str):
        return Value(shared([text, *others], _translated_by_rows), TEXT, node)
    letters = dict(zip(reversed(old), reversed([*new, *[""] * len(old)][: len(old)]), strict=True))
    if not letters:
        return Value(text.expr, TEXT, node)
    return Value(text.expr.str.replace_many([*letters], [*letters.values()]), TEXT, node)


def _translated_by_rows(text: Value, old: Value, new: Value) -> pl.Expr:
    """Each letter is looked for in ``old``, and the one with its number in ``new`` takes its place."""
    letters_of_text = text.expr.str.extract_all("(?s).")
    both = pl.struct(old=old.expr, new=new.expr).repeat_by(letters_of_text.list.len())
    kind = pl.Struct({"old": pl.String, "new": pl.String})
    pairs = polars_json.zipped(letters_of_text, both, (pl.String(), kind))
    letter, names = pl.element().struct.field("key"), pl.element().struct.field("value").struct
    before = names.field("old").str.splitn(letter, 2).struct.field("field_0").str.len_chars()
    there = names.field("old").str.contains(letter, literal=True)
    changed = pl.when(there).then(names.field("new").str.slice(before, 1)).otherwise(letter)
    return pl.when(_unless_null(True, text, old, new)).then(pairs.list.eval(changed).list.join(""))


def _overlaid(values: Values, node: exp.Overlay) -> Value:
    """The row fails for a place before the text."""
    length = node.args.get("for_")
    keys = ("this", "expression", "from_", *(["for_"] if length is not None else []))
    parts = values.arguments(node, "string", "string", *["int64"] * (len(keys) - 2), keys=keys)

    def overlaid(text: Value, new: Value, start: Value, count: Value | None = None) -> pl.Expr:
        wrong = zeros.failing_where(start.expr < 1, "is no place of overlay(), which counts from 1")
        size = new.expr.str.len_chars().cast(pl.Int64) if count is None else count.expr
        behind = (start.expr - 1 + size).clip(lower_bound=0)
        whole = text.expr.str.head(start.expr - 1 + wrong) + new.expr + text.expr.str.slice(behind)
        return pl.when(_unless_null(True, *(argument for argument in (start, count) if argument is not None))).then(
            whole
        )

    return Value(shared(parts, overlaid), TEXT, node)


_PLACE = re.compile(r"%(?:(\d+)\$)?(-?)(\d*)([sL])|%%")


def _formatted(values: Values, node: exp.Format) -> Value:
    """``format('%s is %-5s %2$L', a, b)``: PostgreSQL's, with numbers of arguments and widths."""
    pattern = values.of(node.this).literal
    if not isinstance(pattern, str) or "%" in _PLACE.sub("", pattern):
        values.source.refuse(node, "format() with anything but %s, %L and %% in a literal", "quote names by ||")
    parts, begin, number = [pl.lit("")], 0, 0
    for slot in _PLACE.finditer(pattern):
        parts.append(pl.lit(pattern[begin : slot.start()] + ("%" if slot[0] == "%%" else "")))
        begin = slot.end()
        if slot[0] == "%%":
            continue
        number = int(slot[1]) if slot[1] else number + 1
        if not 1 <= number <= len(node.expressions):
            raise values.source.error(node, f"{shown(node)} has too few values", "give one for each %s")
        parts.append(_in_width(text_of(values, values.of(node.expressions[number - 1])), slot))
    return Value(pl.concat_str([*parts, pl.lit(pattern[begin:])]), TEXT, node)


def _in_width(text: pl.Expr, slot: re.Match[str]) -> pl.Expr:
    """A null is empty, or NULL among literals."""
    text = letters.as_literal(text).fill_null("NULL") if slot[4] == "L" else text.fill_null("")
    width = int(slot[3] or 0)
    return text.str.pad_end(width) if slot[2] else text.str.pad_start(width)


def _bytes(text: pl.Expr) -> pl.Expr:
    return text.str.len_bytes().cast(pl.Int64)


def printed(*, null: str | None) -> Rule:
    """The rule of a pattern with ``%s`` and ``%d``, and the values for them. ``null``: what is written for a null;
    None: the whole text is null then.
    """

    def rule(values: Values, node: exp.Expr) -> Value:
        pattern, *rest = given(node)
        text, name = values.of(pattern).literal, called(node)
        if not isinstance(text, str) or "%" in re.sub("%[sd%]", "", text):
            values.source.refuse(node, f"{name}() with anything but %s, %d and %% in a literal", "cast, lpad() and ||")
        pieces = re.split("(%[sd%])", text)
        if sum(piece in ("%s", "%d") for piece in pieces) != len(rest):
            raise values.source.error(node, f"{name}() has another number of values", "give one for each %s and %d")
        parts, others = list[pl.Expr](), iter([values.of(part) for part in rest])
        for piece in pieces:
            if piece in ("%s", "%d"):
                value = next(others)
                if value.type == FLOAT:
                    values.source.refuse(node, f"{name}() of a double", "cast it to a decimal")
                written = text_of(values, values.require(value, "int64") if piece == "%d" else value)
                parts.append(written if null is None else written.fill_null(null))
            else:
                parts.append(pl.lit("%" if piece == "%%" else piece))
        return Value(pl.concat_str(parts), TEXT, node)

    return rule


def _length(letters: Callable[[pl.Expr], pl.Expr]) -> Rule:
    """How many letters a text has, or how many bytes."""

    def rule(values: Values, node: exp.Expr) -> Value:
        value = values.of(given(node)[0])
        if value.type is not None and value.type.name == "binary":
            return Value(value.expr.bin.size().cast(pl.Int64), INT, node)
        return Value(letters(values.require(value, "string").expr), INT, node)

    return rule


def _normalized(values: Values, node: exp.Normalize) -> Value:
    form = node.args["form"].name.upper() if isinstance(node.args.get("form"), exp.Expr) else "NFC"
    if form not in ("NFC", "NFD", "NFKC", "NFKD"):
        values.source.refuse(node, f"normalize() to {form}", "NFC, NFD, NFKC and NFKD")
    text = values.require(values.of(node.this), "string").expr
    return Value(text.str.normalize(form), TEXT, node)  # type: ignore[arg-type]


def _sha2(values: Values, node: exp.SHA2) -> Value:
    text, bits = values.arguments(node, "string")[0], node.args.get("length")
    number = values.of(bits).literal if bits is not None else 256
    symbol = f"sha2_{number or 256}"
    if symbol not in hashes.SYMBOLS:
        values.source.refuse(node, "sha2() of this number of bits", "224, 256, 384 or 512")
    return Value(hashes.of(symbol)(text.expr), TEXT, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.DPipe: _concatenated,
    exp.Concat: _concat,
    exp.ConcatWs: _joined,
    exp.Upper: function(lambda x: x.str.to_uppercase(), TEXT, "string"),
    exp.Lower: function(lambda x: x.str.to_lowercase(), TEXT, "string"),
    exp.Initcap: function(lambda x: x.str.to_titlecase(), TEXT, "string"),
    exp.Length: _length(lambda x: x.str.len_chars().cast(pl.Int64)),
    exp.BitLength: function(lambda x: _bytes(x) * 8, INT, "string"),
    exp.Reverse: function(lambda x: x.str.reverse(), TEXT, "string"),
    exp.Substring: _substring,
    exp.Overlay: _overlaid,
    exp.SplitPart: field(whole=whole_at_ends, zero_fails=True),
    exp.Trim: _trim,
    exp.Pad: _padded,
    exp.Repeat: function(repeated, TEXT, "string", "int64", keys=("this", "times"), repeats=True),
    exp.StrPosition: _position,
    exp.Replace: _replace,
    exp.Translate: _translated,
    exp.Format: _formatted,
    exp.Normalize: _normalized,
    # A negative count leaves as many letters out at the other side.
    exp.Left: function(lambda x, count: x.str.head(count), TEXT, "string", "int64"),
    exp.Right: function(lambda x, count: x.str.tail(count), TEXT, "string", "int64"),
    exp.StartsWith: function(lambda x, part: x.str.starts_with(part), BOOL, "string", "string"),
    exp.MD5: function(hashes.of("md5"), TEXT, "string"),
    exp.SHA: function(hashes.of("sha1"), TEXT, "string"),
    exp.SHA2: _sha2,
    exp.EndsWith: function(lambda x, part: x.str.ends_with(part), BOOL, "string", "string"),
    exp.Contains: function(lambda x, part: x.str.contains(part, literal=True), BOOL, "string", "string"),
}

NAMED: dict[str, Named] = {"octet_length": (1, _length(_bytes))}
