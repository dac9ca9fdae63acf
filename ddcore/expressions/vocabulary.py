"""The vocabulary of expressions: the functions, operators and types whose result depends on the row alone.

A function that is not listed is refused. A wrong entry would make the result depend on the rows that share a batch, on
their order or on the process, and a retraction could then miss the row it retracts. The tests evaluate every name
below row by row, in batches cut at random and in several processes: a new name needs a sample there.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import instance
from ddcore.expressions import polars_json, syntax, texts
from ddcore.expressions.syntax import Call, Cast, Column, Element, Eval, Foreign, Literal, Tree

Objection = tuple[str, str]
"""The end of an error message, to follow the expression's text, and a hint."""

FUNCTIONS = {
    "Abs", "AsStruct", "Atan2", "Ceil", "Clip", "Coalesce", "Erf", "Erfc", "Exp", "FillNull", "Floor", "Log", "Log1p",
    "MaxHorizontal", "MeanHorizontal", "MinHorizontal", "Negate", "RepeatBy", "Replace", "ReplaceStrict", "Round",
    "RoundSF", "Sign", "SumHorizontal", "ToPhysical", "Truncate",
    "BinaryExpr.Base64Decode", "BinaryExpr.Base64Encode", "BinaryExpr.Contains", "BinaryExpr.EndsWith",
    "BinaryExpr.Get", "BinaryExpr.Head", "BinaryExpr.HexDecode", "BinaryExpr.HexEncode", "BinaryExpr.Reinterpret",
    "BinaryExpr.Size", "BinaryExpr.Slice", "BinaryExpr.StartsWith", "BinaryExpr.Tail",
    "Bitwise.CountOnes", "Bitwise.CountZeros", "Bitwise.LeadingOnes", "Bitwise.LeadingZeros", "Bitwise.TrailingOnes",
    "Bitwise.TrailingZeros",
    "Boolean.AllHorizontal", "Boolean.AnyHorizontal", "Boolean.IsBetween", "Boolean.IsClose", "Boolean.IsFinite",
    "Boolean.IsIn", "Boolean.IsInfinite", "Boolean.IsNan", "Boolean.IsNotNan", "Boolean.IsNotNull", "Boolean.IsNull",
    "Boolean.Not",
    "Digest.md5", "Digest.sha1", "Digest.sha2_224", "Digest.sha2_256", "Digest.sha2_384", "Digest.sha2_512",
    "ListExpr.ArgMax", "ListExpr.ArgMin", "ListExpr.Concat", "ListExpr.Contains", "ListExpr.CountMatches",
    "ListExpr.DropNulls", "ListExpr.Gather", "ListExpr.GatherEvery", "ListExpr.Get", "ListExpr.Join",
    "ListExpr.Length", "ListExpr.Max", "ListExpr.Mean", "ListExpr.Median", "ListExpr.Min", "ListExpr.SetOperation",
    "ListExpr.Shift", "ListExpr.Slice", "ListExpr.Sort", "ListExpr.Std", "ListExpr.Sum", "ListExpr.ToStruct",
    "ListExpr.Var",
    "MapExpr.ContainsKey", "MapExpr.Entries", "MapExpr.Get", "MapExpr.Keys", "MapExpr.Length", "MapExpr.Values",
    "Pow.Cbrt", "Pow.Generic", "Pow.Sqrt",
    "Range.DateRanges", "Range.DatetimeRanges", "Range.IntRanges",
    "Sql.Div", "Sql.Eq", "Sql.EqMissing", "Sql.Gt", "Sql.GtEq", "Sql.IntDiv", "Sql.Lt", "Sql.LtEq", "Sql.Minus",
    "Sql.Mul", "Sql.Plus", "Sql.Rem", "Sql.Round", "Sql.ToFloat",
    "StringExpr.Base64Decode", "StringExpr.Base64Encode", "StringExpr.ConcatHorizontal", "StringExpr.Contains",
    "StringExpr.ContainsAny", "StringExpr.CountMatches", "StringExpr.EndsWith", "StringExpr.EscapeRegex",
    "StringExpr.Extract", "StringExpr.ExtractAll", "StringExpr.ExtractGroups", "StringExpr.ExtractMany",
    "StringExpr.Find", "StringExpr.FindMany", "StringExpr.Format", "StringExpr.Head", "StringExpr.HexDecode",
    "StringExpr.HexEncode", "StringExpr.JsonDecode", "StringExpr.JsonPathMatch", "StringExpr.LenBytes",
    "StringExpr.LenChars", "StringExpr.Lowercase", "StringExpr.Normalize", "StringExpr.PadEnd", "StringExpr.PadStart",
    "StringExpr.Replace", "StringExpr.ReplaceMany", "StringExpr.Reverse", "StringExpr.Slice", "StringExpr.Split",
    "StringExpr.SplitExact", "StringExpr.SplitN", "StringExpr.SplitRegex", "StringExpr.StartsWith",
    "StringExpr.StripChars", "StringExpr.StripCharsEnd", "StringExpr.StripCharsStart", "StringExpr.StripPrefix",
    "StringExpr.StripSuffix", "StringExpr.Strptime", "StringExpr.Tail", "StringExpr.Titlecase", "StringExpr.ToDecimal",
    "StringExpr.ToInteger", "StringExpr.Uppercase", "StringExpr.ZFill",
    "StructExpr.FieldByName", "StructExpr.JsonEncode", "StructExpr.RenameFields",
    "TemporalExpr.BaseUtcOffset", "TemporalExpr.CastTimeUnit", "TemporalExpr.Century", "TemporalExpr.Combine",
    "TemporalExpr.ConvertTimeZone", "TemporalExpr.DSTOffset", "TemporalExpr.Date", "TemporalExpr.DatetimeFunction",
    "TemporalExpr.Day", "TemporalExpr.DaysInMonth", "TemporalExpr.Duration", "TemporalExpr.Hour",
    "TemporalExpr.IsLeapYear", "TemporalExpr.IsoYear", "TemporalExpr.Microsecond", "TemporalExpr.Millennium",
    "TemporalExpr.Millisecond", "TemporalExpr.Minute", "TemporalExpr.Month", "TemporalExpr.MonthEnd",
    "TemporalExpr.MonthStart", "TemporalExpr.Nanosecond", "TemporalExpr.OffsetBy", "TemporalExpr.OrdinalDay",
    "TemporalExpr.Quarter", "TemporalExpr.Replace", "TemporalExpr.ReplaceTimeZone", "TemporalExpr.Round",
    "TemporalExpr.Second", "TemporalExpr.Time", "TemporalExpr.TimeStamp", "TemporalExpr.ToString",
    "TemporalExpr.TotalDays", "TemporalExpr.TotalHours", "TemporalExpr.TotalMicroseconds",
    "TemporalExpr.TotalMilliseconds", "TemporalExpr.TotalMinutes", "TemporalExpr.TotalSeconds",
    "TemporalExpr.Truncate", "TemporalExpr.Week", "TemporalExpr.WeekDay", "TemporalExpr.Year",
    "Trigonometry.ArcCos", "Trigonometry.ArcCosh", "Trigonometry.ArcSin", "Trigonometry.ArcSinh",
    "Trigonometry.ArcTan", "Trigonometry.ArcTanh", "Trigonometry.Cos", "Trigonometry.Cosh", "Trigonometry.Cot",
    "Trigonometry.Degrees", "Trigonometry.Radians", "Trigonometry.Sin", "Trigonometry.Sinh", "Trigonometry.Tan",
    "Trigonometry.Tanh",
}  # fmt: skip

_AGGREGATES = {"Any", "All", "First", "Last", "Item", "NUnique"}  # of all elements of one list

TYPES = {
    "Boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Int128", "Float32",
    "Float64", "String", "Binary", "Date", "Time", "Datetime", "Duration", "Decimal", "List", "Struct",
    "Map",
}  # fmt: skip
"""Types to cast to. The codes of a Categorical depend on the other strings of the process."""

# Polars reads these arguments once for all rows, so they must be the same for all: argument numbers.
_VALUES: dict[str, slice] = {
    "Replace": slice(1, 3), "ReplaceStrict": slice(1, 3), "StringExpr.Replace": slice(1, 3),
    "StringExpr.ContainsAny": slice(1, 2), "StringExpr.ReplaceMany": slice(1, 3),
    "TemporalExpr.Replace": slice(1, None), "ListExpr.CountMatches": slice(1, 2),
}  # fmt: skip
_UNSTABLE = {
    "Random", "Hash", "Sample", "Shuffle", "Mode", "ValueCounts", "UniqueCounts", "AnonymousFunction",
    "AnonymousAgg",
}  # fmt: skip
_OF_ROWS = {
    "StringExpr.ConcatVertical", "Boolean.Any", "Boolean.All", "Boolean.HasNulls", "Boolean.IsUnique",
    "Boolean.IsDuplicated", "Boolean.IsFirstDistinct", "Boolean.IsLastDistinct", "Boolean.IsEmpty", "Boolean.IsSorted",
    "Range.IntRange", "Range.DateRange", "Range.DatetimeRange", "Range.TimeRange", "Range.LinearSpace",
}  # fmt: skip
_UNLISTED = "what they may use: docs/programs.md; else use flat_map() with a function"
_MIXING = "an expression must map each row by itself: use group_by().agg() or reduce() for what needs several rows"


def check(tree: Tree) -> None:
    """Raises ProgramError for a tree that reads other rows, or whose value is not a function of the row."""
    objection = _first_objection(tree, inside=False)
    if objection:
        raise ProgramError(f"the expression {texts.display(tree)} {objection[0]}", objection[1])


def _first_objection(tree: Tree, inside: bool) -> Objection | None:
    for node in syntax.walk(tree):
        objection = _objection(node, inside)
        if objection:
            return objection
    return None


def _objection(node: Tree, inside: bool) -> Objection | None:  # noqa: PLR0911  (one case, one return)
    match node:
        case Literal():
            return _objection_to_literal(node)
        case Cast():
            if node.mode == "Overflowing":
                how = "cast without it: what does not fit is an error"
                return "casts with wrap_numerical, where integers wrap around", how
            return _objection_to_type(node.dtype)
        case Eval():
            return _objection_to_eval(node)
        case Call() if not syntax.is_operator(node):
            return _objection_to_function(node)
        case Column() if inside:
            return "reads a column inside a list", "use pl.element() there"
        case Element() if not inside:
            return "uses pl.element() outside of a list", "name a column"
        case Foreign("Selector"):
            return "may name any number of columns", "name each column by itself"
        case Foreign(kind, body):
            return _mixes(next(iter(body)) if kind == "Agg" else kind)
    return None


def _mixes(name: str) -> Objection:
    return f"is no map of single rows: it uses {texts.snake(name)}", _MIXING


def _unlisted(name: str) -> Objection:
    return f"uses {texts.snake(name.rpartition('.')[2])}, which expressions may not use", _UNLISTED


def _objection_to_literal(literal: Literal) -> Objection | None:
    if literal.dtype == "Series":
        return "holds a whole series as a value", "join with a collection of these values"
    if literal.dtype == "Int" and not -(2**63) <= literal.value < 2**63:
        return f"has the literal {literal.value}, beyond int64", "integer literals are int64"
    return None


def _objection_to_type(dtype: pl.DataType) -> Objection | None:
    name = dtype.base_type().__name__
    if name not in TYPES:
        return f"casts to {name}, whose values depend on more than the row", "cast to string, a number or a date"
    inner: list[Any] = [dtype.inner] if isinstance(dtype, pl.List) else []
    if isinstance(dtype, pl.Struct):
        inner = [field.dtype for field in dtype.fields]
    if isinstance(dtype, pl.Map):
        inner = [dtype.key, dtype.value]
    return next(filter(None, map(_objection_to_type, map(instance, inner))), None)


def _objection_to_eval(node: Eval) -> Objection | None:
    if node.variant not in ("List", "ListAgg"):
        return "accumulates over rows, or takes arrays apart", _MIXING
    if node.variant == "ListAgg" and node.whole not in _AGGREGATES:
        return "aggregates inside a list", "use list.sum() and the like, or take the list apart with flat_map()"
    objection = _first_objection(node.part, inside=True)
    return objection and (f"inside the list {objection[0]}", objection[1])


def _objection_to_function(node: Call) -> Objection | None:
    name = node.name
    last = name.rpartition(".")[2]
    if last in _UNSTABLE and name not in FUNCTIONS:
        return f"uses {texts.snake(last)}, whose result is not the same in every run", "compute it otherwise"
    if name not in FUNCTIONS:
        return _unlisted(name) if "." in name and name not in _OF_ROWS else _mixes(last)
    if last == "Strptime" and polars_json.time_format(node) is None:
        return "guesses the format of times from the rows that are there", "give format= to the function"
    if name in _VALUES and not all(map(_is_values, node.args[_VALUES[name]])):
        return f"has a column where {texts.snake(last)} takes values", "give values, use when().then(), or join"
    dtype = polars_json.result_type(node)
    return _objection_to_type(dtype) if dtype is not None else None


def _is_values(tree: Tree) -> bool:
    inner = syntax.bare(tree)
    return isinstance(inner, Literal) or (isinstance(inner, Cast) and _is_values(inner.expr))
