"""Well-typed arguments for every function that expressions may use, and rows to apply them to.

Run as a program it prints the value of every sample in every row, to be compared between processes.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
from polars import col, element

from ddcore.base.errors import ProgramError
from ddcore.base.schema import parse_schema
from ddcore.expressions import hashes, polars_json
from ddcore.expressions.projections import ListProjection, Projection

SCHEMA = parse_schema(
    {
        "a": "int64", "b": "int64", "k": "int64", "x": "float64", "y": "float64", "p": "decimal(10,2)",
        "q": "decimal(12,4)", "name": "string", "word": "string", "iso": "string", "number": "string", "hexa": "string",
        "json": "string", "step": "string", "ok": "bool", "yes": "bool", "raw": "binary", "day": "date",
        "at": "timestamp", "due": "timestamp", "tags": "map[string, int64]",
    }
)  # fmt: skip
_EDGES: dict[str, list[Any]] = {
    "a": [1, -7, None, 0, 2**31, -(2**31), 7, 9],
    "b": [2, None, -4, 5, 1, 6, 0],
    "k": [0, 1, 2, 3, 1],
    "x": [0.5, -1.25, None, float("nan"), 0.0, 1e300, float("inf"), 7.125, 0.1, -1e-300],
    "y": [1.5, 2.25, None, 0.25, 1.0, 3.0, 0.3],
    "p": [*map(Decimal, ["1.25", "-2.50", "0.05", "99999999.99", "0.00", "1.01"]), None],
    "q": [*map(Decimal, ["0.0700", "-2.5001", "9999.9999", "0.0001"]), None],
    "name": ["tea,jam", "a b c", None, "", "Jam-12", "x=1;y=2", "éa", "tea tea", "12", "zz,zz,q", "e\u0301", "ß"],
    "word": ["tea", "b", "x", None, "y", "a", "e", "1", "z"],
    "iso": ["2026-01-02", "2025-12-31", "1999-02-03", None, "2000-02-29", "1970-01-01", "1969-12-31"],
    "number": ["12", "-3", "4", None, "0", "100"],
    "hexa": ["00ff", "ab", "", None, "0f"],
    "json": ['{"k": 1}', '{"k": 2, "l": "x"}', None, '{"l": "y"}'],
    "step": ["1d", "2h", "1mo", "3d12h", "-1w"],
    "ok": [True, False, None],
    "yes": [None, True, False, True],
    "raw": [b"12345678", b"tea-tea-", None, b"zzzzzzzz", b"\xffabcdefg"],
    "day": [date(2026, 1, 2), None, date(1999, 2, 3), date(2000, 2, 29), date(1969, 12, 31), date(1, 1, 1)],
    "at": [
        datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), None, datetime(1999, 2, 3, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2023, 3, 26, 1, 30, tzinfo=UTC),
    ],
    "tags": [{"a": 1, "b": None}, {}, None, {"jam-12": 7, "tea": -2**60}],
    "due": [datetime(2026, 1, 3, tzinfo=UTC), datetime(1999, 2, 4, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC), None],
}  # fmt: skip


def rows(count: int, seed: int) -> pl.DataFrame:
    """Rows of ``SCHEMA``: all edge cases, side by side in other ways each time, and random numbers."""
    rng = random.Random(seed)
    columns = {name: [rng.choice(edges) for _ in range(count)] for name, edges in _EDGES.items()}
    columns |= {name: _mixed(values, rng) for name, values in columns.items() if name in ("a", "b", "x", "y")}
    return pl.DataFrame(columns, schema={name: kind.polars for name, kind in SCHEMA.items()})


def _mixed(values: list[Any], rng: random.Random) -> list[Any]:
    draw: Callable[[], Any] = (
        (lambda: rng.uniform(-100, 100)) if float in map(type, values) else lambda: rng.randint(-99, 99)
    )
    return [draw() if rng.random() < 0.6 else value for value in values]


a, b, k, x, y, p, q = (col(name) for name in ("a", "b", "k", "x", "y", "p", "q"))
name, word, iso, number, hexa = (col(name) for name in ("name", "word", "iso", "number", "hexa"))
ok, yes, raw, day, at, due, step = (col(name) for name in ("ok", "yes", "raw", "day", "at", "due", "step"))
tags = col("tags")
unit = (x.fill_nan(0.5).sin()).fill_null(0.25)
words, letters, ints = name.str.split(","), name.str.split(""), pl.concat_list("a", "b", "k")
floats, flags, gap = pl.concat_list("x", "y"), pl.concat_list("ok", "yes"), at - due

OPERATORS: dict[str, list[pl.Expr]] = {
    "Plus": [
        a + b, x + y, x + 0.1, p + q, p + 1, p + 0.5, name + word, at + timedelta(days=1), day + pl.duration(days=k),
    ],
    "Minus": [a - b, x - 0.1, 3.5 - x, p - q, gap.dt.total_microseconds(), day - timedelta(days=3)],
    "Multiply": [a * 3, a * k, x * 0.1, x * y, p * q, p * 1.5, p * k, p * x, at + pl.duration(hours=1) * k],
    "TrueDivide": [
        a / b, a / 7, 7 / a, x / 3, x / 0.7, 3.5 / x, x / y, x / (y * 0 + 3), p.cast(pl.Float64) / 7,
        x / pl.when(ok).then(3.0).otherwise(7.0), x / pl.lit(3).cast(pl.Float64), gap / timedelta(days=1), -x / 3,
        x / 3 / 7, pl.lit(10.0) / 3 * k,
    ],
    "FloorDivide": [a // b, a // 7, 7 // a, x // 0.7, x // y, 10.0 // y, (a * 0.7) // 0.7],
    "TruncDivide": [a.truncdiv(b), x.truncdiv(0.7), (a * 0.7).truncdiv(0.7)],
    "Modulus": [a % b, a % 7, x % 0.7, 10.0 % y, a % 0.7, (a * 0.7) % 0.7, x % y],
    "Eq": [a == b, p == q, p == 1.25, name == "12", x == y, day == date(2000, 2, 29), day == at],
    "NotEq": [a != b], "Lt": [a < b, day < at, p < 0.1], "LtEq": [x <= 0.5], "Gt": [name > word], "GtEq": [raw >= b"t"],
    "EqValidity": [
        a.eq_missing(b)], "NotEqValidity": [a.ne_missing(b)], "And": [ok & yes, a & b], "Or": [ok | yes, a | 3,
    ],
    "Xor": [ok ^ yes, a ^ b], "LogicalAnd": [pl.sql_expr("ok and yes")], "LogicalOr": [pl.sql_expr("ok or a > 1")],
}  # fmt: skip

FUNCTIONS: dict[str, list[pl.Expr]] = {
    "Abs": [a.abs(), x.abs(), p.abs()],
    "AsStruct": [pl.struct("a", "x").struct.field("x")],
    "Atan2": [pl.arctan2("x", "y"), pl.arctan2(x, pl.lit(0.5))],
    "Ceil": [x.ceil(), p.ceil()],
    "Clip": [a.clip(k, k + 9), a.clip(0, 5), x.clip(0.1, 3.3), p.clip(q - 1, q + 1), p.clip(Decimal("0.005"), 7)],
    "Coalesce": [pl.coalesce("a", "b", pl.lit(3)), pl.coalesce("p", "q"), pl.coalesce(word, name)],
    "Erf": [x.erf()],
    "Erfc": [x.erfc()],
    "Exp": [y.exp()],
    "FillNull": [a.fill_null(b), a.fill_null(0), name.fill_null(word), p.fill_null(q), at.fill_null(due)],
    "Floor": [x.floor(), p.floor()],
    "Log": [y.log(), y.log(3), y.log(x.abs() + 2), x.log10()],
    "Log1p": [y.log1p()],
    "MaxHorizontal": [pl.max_horizontal("a", "b"), pl.max_horizontal("x", 0.5), pl.max_horizontal("p", "q")],
    "MeanHorizontal": [pl.mean_horizontal("a", "b", "k"), pl.mean_horizontal("x", "y"), pl.mean_horizontal("p", "a")],
    "MinHorizontal": [pl.min_horizontal("a", "b"), pl.min_horizontal("at", "due")],
    "Negate": [-a, -x, -p],
    "RepeatBy": [name.repeat_by(k), a.repeat_by(2)],
    "Replace": [name.replace("12", "13"), a.replace(7, 8)],
    "ReplaceStrict": [name.replace_strict("12", "q", default=word), a.replace_strict(7, "x", default=None)],
    "Round": [x.round(1), p.round(1), x.round(2, mode="half_away_from_zero")],
    "RoundSF": [x.round_sig_figs(2)],
    "Sign": [a.sign(), x.sign(), p.sign()],
    "SumHorizontal": [pl.sum_horizontal("a", "b"), pl.sum_horizontal("x", "y"), pl.sum_horizontal("p", "q", "a")],
    "ToPhysical": [at.to_physical(), day.to_physical()],
    "Truncate": [x.truncate(1)],
    "Bitwise.CountOnes": [a.bitwise_count_ones()],
    "Bitwise.CountZeros": [a.bitwise_count_zeros()],
    "Bitwise.LeadingOnes": [a.bitwise_leading_ones()],
    "Bitwise.LeadingZeros": [a.bitwise_leading_zeros()],
    "Bitwise.TrailingOnes": [a.bitwise_trailing_ones()],
    "Bitwise.TrailingZeros": [a.bitwise_trailing_zeros()],
    "Boolean.AllHorizontal": [pl.all_horizontal("ok", "yes")],
    "Boolean.AnyHorizontal": [pl.any_horizontal("ok", "yes")],
    "Boolean.IsBetween": [a.is_between(b, k), p.is_between(q, 7), x.is_between(0.1, y, closed="left")],
    "Boolean.IsClose": [x.is_close(y), x.is_close(0.5)],
    "Boolean.IsFinite": [x.is_finite()],
    "Boolean.IsIn": [
        a.is_in([1, 7]), a.is_in(ints), name.is_in(["12", ""]), p.is_in([Decimal("1.2500"), Decimal("0.051")]),
    ],
    "Boolean.IsInfinite": [x.is_infinite()],
    "Boolean.IsNan": [x.is_nan()],
    "Boolean.IsNotNan": [x.is_not_nan()],
    "Boolean.IsNotNull": [a.is_not_null()],
    "Boolean.IsNull": [a.is_null()],
    "Boolean.Not": [~ok, ~a],
    "MapExpr.ContainsKey": [tags.map.contains_key("a"), tags.map.contains_key(name)],
    "MapExpr.Entries": [tags.map.entries()],
    "MapExpr.Get": [tags.map.get("tea"), tags.map.get(word)],
    "MapExpr.Keys": [tags.map.keys()],
    "MapExpr.Length": [tags.map.len()],
    "MapExpr.Values": [tags.map.values()],
    "Pow.Cbrt": [x.cbrt()],
    "Pow.Generic": [a.clip(-9, 9) ** 2, b.clip(-9, 9) ** k, y**x.clip(-2, 2), y**0.5, x**3, 2.0**y, y**-1.0],
    "Pow.Sqrt": [y.sqrt()],
    "Range.DateRanges": [pl.date_ranges("day", day + timedelta(days=3))],
    "Range.DatetimeRanges": [pl.datetime_ranges("due", due + timedelta(days=1), "6h")],
    "Range.IntRanges": [pl.int_ranges(0, k), pl.int_ranges("k", k * 2, 2)],
    "Sql.Div": [pl.sql_expr("a / b"), pl.sql_expr("x / 3"), pl.sql_expr("a / 7"), pl.sql_expr("a / 0.7")],
    "Sql.Eq": [pl.sql_expr("p = 1.25"), pl.sql_expr("x <> 0.5")],
    "Sql.EqMissing": [pl.sql_expr("p <=> 1.25")],
    "Sql.Gt": [pl.sql_expr("p > 0.5"), pl.sql_expr("x > 0.5"), pl.sql_expr("a > 0.5")],
    "Sql.GtEq": [pl.sql_expr("p >= 0.05")],
    "Sql.Lt": [pl.sql_expr("p < 0.055")],
    "Sql.LtEq": [pl.sql_expr("p <= 0.5")],
    "Sql.Minus": [pl.sql_expr("p - 0.125"), pl.sql_expr("0.5 - x"), pl.sql_expr("a - 0.5")],
    "Sql.IntDiv": [pl.sql_expr("a // b"), pl.sql_expr("a // 7")],
    "Sql.Mul": [pl.sql_expr("a * b"), pl.sql_expr("p * q"), pl.sql_expr("x * 0.1e0"), pl.sql_expr("p * 1.5")],
    "Sql.Plus": [pl.sql_expr("p + 0.125"), pl.sql_expr("a + 1.5")],
    "Sql.Rem": [pl.sql_expr("a % b"), pl.sql_expr("x % 0.7e0")],
    "Sql.Round": [pl.sql_expr("round(x, 1)")],
    "Sql.ToFloat": [pl.sql_expr("pow(x, 2)")],
    "Trigonometry.ArcCos": [unit.arccos()],
    "Trigonometry.ArcCosh": [(unit + 2).arccosh()],
    "Trigonometry.ArcSin": [unit.arcsin()],
    "Trigonometry.ArcSinh": [x.arcsinh()],
    "Trigonometry.ArcTan": [x.arctan()],
    "Trigonometry.ArcTanh": [unit.arctanh()],
    "Trigonometry.Cos": [x.cos()],
    "Trigonometry.Cosh": [y.cosh()],
    "Trigonometry.Cot": [x.cot()],
    "Trigonometry.Degrees": [x.degrees()],
    "Trigonometry.Radians": [x.radians()],
    "Trigonometry.Sin": [x.sin()],
    "Trigonometry.Sinh": [y.sinh()],
    "Trigonometry.Tan": [x.tan()],
    "Trigonometry.Tanh": [x.tanh()],
    "BinaryExpr.Base64Decode": [name.str.encode("base64").cast(pl.Binary).bin.decode("base64")],
    "BinaryExpr.Base64Encode": [raw.bin.encode("base64")],
    "BinaryExpr.Contains": [raw.bin.contains(b"a"), raw.bin.contains(word.cast(pl.Binary))],
    "BinaryExpr.EndsWith": [raw.bin.ends_with(b"8"), raw.bin.ends_with(word.cast(pl.Binary))],
    "BinaryExpr.Get": [raw.bin.get(0, null_on_oob=True), raw.bin.get(k)],
    "BinaryExpr.Head": [raw.bin.head(3), raw.bin.head(k)],
    "BinaryExpr.HexDecode": [hexa.cast(pl.Binary).bin.decode("hex")],
    "BinaryExpr.HexEncode": [raw.bin.encode("hex")],
    "BinaryExpr.Reinterpret": [raw.bin.reinterpret(dtype=pl.Int64), raw.bin.reinterpret(dtype=pl.Float64)],
    "BinaryExpr.Size": [raw.bin.size()],
    "BinaryExpr.Slice": [raw.bin.slice(1, 2), raw.bin.slice(k, k)],
    "BinaryExpr.StartsWith": [raw.bin.starts_with(b"t"), raw.bin.starts_with(word.cast(pl.Binary))],
    "BinaryExpr.Tail": [raw.bin.tail(2), raw.bin.tail(k)],
    "StructExpr.FieldByName": [pl.struct("a", "b").struct.field("b")],
    "StructExpr.JsonEncode": [pl.struct("a", "x", "name").struct.json_encode()],
    "StructExpr.RenameFields": [pl.struct("a", "b").struct.rename_fields(["m", "n"]).struct.field("m")],
    "StringExpr.Base64Decode": [name.str.encode("base64").str.decode("base64")],
    "StringExpr.Base64Encode": [name.str.encode("base64")],
    "StringExpr.ConcatHorizontal": [
        pl.concat_str("name", "a", separator="-"), pl.concat_str(word, pl.lit("!"), ignore_nulls=True),
    ],
    "StringExpr.Contains": [name.str.contains("a"), name.str.contains(word), name.str.contains(word, literal=True)],
    "StringExpr.ContainsAny": [name.str.contains_any(["a", "1"])],
    "StringExpr.CountMatches": [name.str.count_matches("a"), name.str.count_matches(word)],
    "StringExpr.EndsWith": [name.str.ends_with("a"), name.str.ends_with(word)],
    "StringExpr.EscapeRegex": [name.str.escape_regex()],
    "StringExpr.Extract": [name.str.extract("([a-z]+)"), name.str.extract(pl.format("({})", word))],
    "StringExpr.ExtractAll": [name.str.extract_all("[a-z]"), name.str.extract_all(word)],
    "StringExpr.ExtractGroups": [name.str.extract_groups("(?<l>[a-z])(?<d>[0-9])?").struct.field("l")],
    "StringExpr.ExtractMany": [name.str.extract_many(["a", "te"]), name.str.extract_many(words)],
    "StringExpr.Find": [name.str.find("a"), name.str.find(word)],
    "StringExpr.FindMany": [name.str.find_many(["a", "z"]), name.str.find_many(words)],
    "StringExpr.Format": [pl.format("{}={}", name, a)],
    "StringExpr.Head": [name.str.head(2), name.str.head(k)],
    "StringExpr.HexDecode": [hexa.str.decode("hex"), name.str.decode("hex", strict=False)],
    "StringExpr.HexEncode": [name.str.encode("hex")],
    "StringExpr.JsonDecode": [
        col("json").str.json_decode(pl.Struct({"k": pl.Int64, "l": pl.String})).struct.field("k"),
    ],
    "StringExpr.JsonPathMatch": [col("json").str.json_path_match("$.k")],
    "StringExpr.LenBytes": [name.str.len_bytes()],
    "StringExpr.LenChars": [name.str.len_chars()],
    "StringExpr.Lowercase": [name.str.to_lowercase()],
    "StringExpr.Normalize": [name.str.normalize("NFKD"), name.str.normalize("NFC")],
    "StringExpr.PadEnd": [name.str.pad_end(8, "*"), name.str.pad_end(k)],
    "StringExpr.PadStart": [name.str.pad_start(8), name.str.pad_start(k)],
    "StringExpr.Replace": [
        name.str.replace("a", "o"), name.str.replace_all("[a-z]", "o"), name.str.replace("(t)", "$1$1"),
    ],
    "StringExpr.ReplaceMany": [name.str.replace_many(["a", "te"], ["o", "ti"]), name.str.replace_many(["a"], ["b"])],
    "StringExpr.Reverse": [name.str.reverse()],
    "StringExpr.Slice": [name.str.slice(1, 2), name.str.slice(k, k), name.str.slice(-2)],
    "StringExpr.Split": [words, name.str.split(word), name.str.split(",", inclusive=True)],
    "StringExpr.SplitExact": [name.str.split_exact(",", 1).struct.field("field_1")],
    "StringExpr.SplitN": [name.str.splitn(",", 2).struct.field("field_1")],
    "StringExpr.SplitRegex": [name.str.split("[, ]", literal=False), name.str.split(word, literal=False)],
    "StringExpr.StartsWith": [name.str.starts_with("t"), name.str.starts_with(word)],
    "StringExpr.StripChars": [name.str.strip_chars(), name.str.strip_chars(word)],
    "StringExpr.StripCharsEnd": [name.str.strip_chars_end("am"), name.str.strip_chars_end(word)],
    "StringExpr.StripCharsStart": [name.str.strip_chars_start("t"), name.str.strip_chars_start(word)],
    "StringExpr.StripPrefix": [name.str.strip_prefix("t"), name.str.strip_prefix(word)],
    "StringExpr.StripSuffix": [name.str.strip_suffix("m"), name.str.strip_suffix(word)],
    "StringExpr.Strptime": [
        iso.str.to_date("%Y-%m-%d"), name.str.to_date("%Y-%m-%d", strict=False),
        (iso + " 12:30").str.to_datetime("%Y-%m-%d %H:%M", time_zone="UTC"),
        (iso + " 12:30").str.to_datetime("%Y-%m-%d %H:%M", time_zone="Europe/Berlin"),
    ],
    "StringExpr.Tail": [name.str.tail(2), name.str.tail(k)],
    "StringExpr.Titlecase": [name.str.to_titlecase()],
    "StringExpr.ToDecimal": [number.str.to_decimal(scale=2)],
    "StringExpr.ToInteger": [
        number.str.to_integer(), number.str.to_integer(base=k + 10), name.str.to_integer(strict=False),
    ],
    "StringExpr.Uppercase": [name.str.to_uppercase()],
    "StringExpr.ZFill": [number.str.zfill(8), number.str.zfill(k)],
    "TemporalExpr.BaseUtcOffset": [at.dt.convert_time_zone("Asia/Tokyo").dt.base_utc_offset().dt.total_hours()],
    "TemporalExpr.CastTimeUnit": [at.dt.cast_time_unit("ms")],
    "TemporalExpr.Century": [at.dt.century()],
    "TemporalExpr.Combine": [day.dt.combine(time(1, 2)), day.dt.combine(at.dt.time())],
    "TemporalExpr.ConvertTimeZone": [at.dt.convert_time_zone("Europe/Berlin").dt.hour()],
    "TemporalExpr.DSTOffset": [at.dt.convert_time_zone("Europe/Berlin").dt.dst_offset().dt.total_hours()],
    "TemporalExpr.Date": [at.dt.date()],
    "TemporalExpr.DatetimeFunction": [pl.datetime(k + 2000, 1, 1), pl.date(k + 2000, k + 1, 1)],
    "TemporalExpr.Day": [at.dt.day(), day.dt.day()],
    "TemporalExpr.DaysInMonth": [day.dt.days_in_month()],
    "TemporalExpr.Duration": [at + pl.duration(days=k, hours=1), at - pl.duration(weeks=a.clip(-99, 99))],
    "TemporalExpr.Hour": [at.dt.hour()],
    "TemporalExpr.IsLeapYear": [day.dt.is_leap_year()],
    "TemporalExpr.IsoYear": [day.dt.iso_year()],
    "TemporalExpr.Microsecond": [at.dt.microsecond()],
    "TemporalExpr.Millennium": [day.dt.millennium()],
    "TemporalExpr.Millisecond": [at.dt.millisecond()],
    "TemporalExpr.Minute": [at.dt.minute()],
    "TemporalExpr.Month": [at.dt.month()],
    "TemporalExpr.MonthEnd": [at.dt.month_end(), day.dt.month_end()],
    "TemporalExpr.MonthStart": [at.dt.month_start()],
    "TemporalExpr.Nanosecond": [at.dt.nanosecond()],
    "TemporalExpr.OffsetBy": [day.dt.offset_by("1mo"), at.dt.offset_by("-1d12h"), at.dt.offset_by(step)],
    "TemporalExpr.OrdinalDay": [at.dt.ordinal_day()],
    "TemporalExpr.Quarter": [at.dt.quarter()],
    "TemporalExpr.Replace": [at.dt.replace(day=1), day.dt.replace(month=2, day=3)],
    "TemporalExpr.ReplaceTimeZone": [
        at.dt.replace_time_zone(None),
        at.dt.replace_time_zone("Europe/Berlin", ambiguous="earliest", non_existent="null"),
    ],
    "TemporalExpr.Round": [at.dt.round("1h"), day.dt.round("1mo")],
    "TemporalExpr.Second": [at.dt.second()],
    "TemporalExpr.Time": [day.dt.combine(due.dt.time())],
    "TemporalExpr.TimeStamp": [at.dt.timestamp("ms"), at.dt.epoch("s"), day.dt.timestamp("us")],
    "TemporalExpr.ToString": [at.dt.strftime("%Y/%m"), at.dt.to_string(), day.dt.to_string()],
    "TemporalExpr.TotalDays": [gap.dt.total_days()],
    "TemporalExpr.TotalHours": [gap.dt.total_hours()],
    "TemporalExpr.TotalMicroseconds": [gap.dt.total_microseconds()],
    "TemporalExpr.TotalMilliseconds": [gap.dt.total_milliseconds()],
    "TemporalExpr.TotalMinutes": [gap.dt.total_minutes(), gap.dt.total_minutes(fractional=True)],
    "TemporalExpr.TotalSeconds": [gap.dt.total_seconds()],
    "TemporalExpr.Truncate": [
        at.dt.truncate("1mo"), at.dt.truncate("1w"), at.dt.truncate((k + 1).cast(pl.String) + "h"),
    ],
    "TemporalExpr.Week": [day.dt.week()],
    "TemporalExpr.WeekDay": [day.dt.weekday()],
    "TemporalExpr.Year": [at.dt.year(), day.dt.year()],
    **{f"Digest.{symbol}": [hashes.of(symbol)(name)] for symbol in hashes.SYMBOLS},
    "ListExpr.ArgMax": [ints.list.arg_max()],
    "ListExpr.ArgMin": [ints.list.arg_min()],
    "ListExpr.Concat": [ints, pl.concat_list("a", pl.lit(1)), words.list.concat(letters), pl.concat_list("p", "q")],
    "ListExpr.Contains": [words.list.contains("tea"), words.list.contains(word), ints.list.contains(b)],
    "ListExpr.CountMatches": [words.list.count_matches("zz")],
    "ListExpr.DropNulls": [ints.list.drop_nulls()],
    "ListExpr.Gather": [
        words.list.gather([0, 1], null_on_oob=True), words.list.gather(pl.int_ranges(0, k), null_on_oob=True),
    ],
    "ListExpr.GatherEvery": [letters.list.gather_every(2), letters.list.gather_every(k + 1, 0)],
    "ListExpr.Get": [words.list.get(0), words.list.get(k, null_on_oob=True), words.list.last()],
    "ListExpr.Join": [words.list.join("-"), words.list.join(word), words.list.join("-", ignore_nulls=False)],
    "ListExpr.Length": [words.list.len()],
    "ListExpr.Max": [ints.list.max(), floats.list.max(), words.list.max()],
    "ListExpr.Mean": [ints.list.mean(), floats.list.mean(), pl.concat_list("p", "q").list.mean()],
    "ListExpr.Median": [ints.list.median(), floats.list.median()],
    "ListExpr.Min": [ints.list.min(), floats.list.min()],
    "ListExpr.SetOperation": [
        letters.list.set_union(words), letters.list.set_intersection(["a", "t", "e"]),
        letters.list.set_difference(["a"]),
        letters.list.set_symmetric_difference(["b", "a", "zz"]), pl.lit(["a", "t"]).list.set_union(letters),
    ],
    "ListExpr.Shift": [words.list.shift(1), words.list.shift(k)],
    "ListExpr.Slice": [words.list.slice(1, 1), letters.list.slice(k, k), letters.list.head(2), letters.list.tail(k)],
    "ListExpr.Sort": [letters.list.sort(), floats.list.sort(descending=True, nulls_last=True)],
    "ListExpr.Std": [ints.list.std(), floats.list.std()],
    "ListExpr.Sum": [ints.list.sum(), floats.list.sum(), pl.concat_list("p", "q").list.sum()],
    "ListExpr.ToStruct": [words.list.to_struct(fields=["m", "n"]).struct.field("n")],
    "ListExpr.Var": [ints.list.var(), floats.list.var()],
}  # fmt: skip

INSIDE_LISTS: dict[str, list[pl.Expr]] = {
    "Filter": [letters.list.filter(element() != "a"), floats.list.filter(element() / 3 > 0.1)],
    "Zip": [
        polars_json.zipped(words, words.list.reverse(), (pl.String(), pl.String())),
        polars_json.zipped(ints, ints.list.eval(element().cast(pl.Float64)), (pl.Int64(), pl.Float64())),
    ],
    "Reverse": [letters.list.reverse(), letters.list.eval(element().str.to_uppercase().reverse())],
    "Unique": [letters.list.unique(), letters.list.unique(maintain_order=True)],
    "Any": [flags.list.any()],
    "All": [flags.list.all()],
    "First": [words.list.agg(element().first())],
    "Last": [words.list.agg(element().last())],
    "Item": [words.list.slice(0, 1).list.item(allow_empty=True)],
    "NUnique": [letters.list.n_unique()],
    "": [
        letters.list.eval(element().str.to_uppercase()), letters.list.eval(element() + "x"),
        ints.list.eval(element() % 3),
        floats.list.eval(element() / 3), floats.list.head(1).list.eval(element() / 7),
        letters.list.eval(element().is_in(["a"])),
        words.list.eval(pl.when(element() == "tea").then(pl.lit("T")).otherwise(element())),
        ints.list.eval(pl.sum_horizontal(element().cast(pl.Float64), pl.lit(0.1))),
        words.list.eval(element().str.len_chars() * 2),
    ],
}  # fmt: skip

TYPES: dict[str, list[pl.Expr]] = {
    "Boolean": [a.cast(pl.Boolean)],
    "Int8": [k.cast(pl.Int8) + 1],
    "Int16": [k.cast(pl.Int16)],
    "Int32": [k.cast(pl.Int32)],
    "Int64": [number.cast(pl.Int64), x.cast(pl.Int64, strict=False), at.cast(pl.Int64), p.cast(pl.Int64)],
    "UInt8": [k.cast(pl.UInt8)],
    "UInt16": [k.cast(pl.UInt16)],
    "UInt32": [k.cast(pl.UInt32)],
    "UInt64": [k.cast(pl.UInt64) + 1],
    "Int128": [(a.cast(pl.Int128) * 3).cast(pl.Int64)],
    "Float32": [(x.cast(pl.Float32) / 3).cast(pl.Float64), a.cast(pl.Float32)],
    "Float64": [a.cast(pl.Float64), p.cast(pl.Float64), number.cast(pl.Float64)],
    "String": [a.cast(pl.String), x.cast(pl.String), at.cast(pl.String), p.cast(pl.String), ok.cast(pl.String)],
    "Binary": [name.cast(pl.Binary)],
    "Date": [at.cast(pl.Date), a.clip(-999, 999).cast(pl.Date)],
    "Time": [day.dt.combine(at.cast(pl.Time))],
    "Datetime": [day.cast(pl.Datetime("us", "UTC")), a.cast(pl.Datetime("us")), due.cast(pl.Datetime("ns")).dt.year()],
    "Duration": [at + a.cast(pl.Duration("us"))],
    "Decimal": [
        a.cast(pl.Decimal(18, 2)), number.cast(pl.Decimal(18, 2)), q.cast(pl.Decimal(18, 2)),
        (p * q).cast(pl.Decimal(18, 2)),
    ],
    "List": [ints.cast(pl.List(pl.Float64)), words.cast(pl.List(pl.Binary))],
    "Struct": [col("json").str.json_decode(pl.Struct({"l": pl.String})).struct.field("l")],
    "Map": [tags.map.entries().cast(pl.Map(pl.String, pl.Int64)).map.get("a")],
}  # fmt: skip

ALL = [
    (f"{title} {number}", expr)
    for table in (OPERATORS, FUNCTIONS, INSIDE_LISTS, TYPES)
    for title, exprs in table.items()
    for number, expr in enumerate(exprs)
]


def evaluator(expr: pl.Expr) -> Callable[[pl.DataFrame], list[str]]:
    """A function from rows to the value of the expression in each row, as text that tells all values apart."""
    try:
        projection: Projection | ListProjection = Projection({"value": expr}, SCHEMA)
    except ProgramError as error:
        if "columns of type List" not in error.message:
            raise
        projection = ListProjection({"value": expr}, SCHEMA)

    def evaluate(frame: pl.DataFrame) -> list[str]:
        if isinstance(projection, Projection):
            return [repr(value) for value in projection.evaluate(frame)["value"].to_physical().to_list()]
        elements, origin = projection.explode(frame)
        lists: list[list[str]] = [[] for _ in range(len(frame))]
        for value, row in zip(elements["value"].to_physical().to_list(), origin, strict=True):
            lists[row].append(repr(value))
        return [" ".join(values) for values in lists]

    return evaluate


def main(order: str) -> None:
    """Print all values of all samples; ``order`` other than ``first`` does other things before, and goes backwards."""
    warnings.simplefilter("ignore")
    frame = rows(60, 7)
    table = ALL if order == "first" else ALL[::-1]
    if order != "first":
        noise = pl.DataFrame({"name": ["zz", "q", "tea"]}).cast(pl.Categorical)
        noise.group_by("name").agg(pl.len()).join(noise, on="name")
        for title, expr in random.Random(order).sample(ALL, 40):
            evaluator(expr)(rows(20, len(title)))
    print(json.dumps({title: evaluator(expr)(frame) for title, expr in table}, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1])
