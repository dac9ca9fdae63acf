"""The rules of values: what each kind of expression means, and which of its arguments are read.

:mod:`ddcore.sql.functions` fills the rules in.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from sqlglot import exp

RULES: dict[type[exp.Expr], Callable[..., Any]] = {}
"""By the kind of a node, a function of the values around and the node: those of the default dialect."""
BY_DIALECT: dict[str, dict[type[exp.Expr], Callable[..., Any]]] = {}
"""The rules of each dialect by its name."""
NAMES: dict[str, list[str]] = {}
"""The names of functions in each dialect."""
READ: dict[type[exp.Expr], str] = {
    exp.AddMonths: "preserve_end_of_month", exp.Array: "bracket_notation",
    **dict.fromkeys((exp.ArrayAppend, exp.ArrayPrepend, exp.ArrayConcat, exp.ArrayRemove), "null_propagation"),
    exp.ArraySort: "asc nulls_first", exp.Decode: "charset!", exp.Encode: "charset!",
    exp.ArraySlice: "start! end is_length", exp.ArrayToString: "null",
    exp.ArrayDistinct: "check_null", exp.Normalize: "form", exp.JSONObject: "return_type encoding",
    exp.GenerateSeries: "start! end! step is_end_exclusive", exp.RegexpExtractAll: "group",
    exp.ArrayInsert: "position! offset", exp.Reduce: "initial! merge! finish",
    exp.TimestampAdd: "unit!", exp.TimestampDiff: "unit!", exp.AtTimeZone: "zone!", exp.FromTimeZone: "zone!",
    exp.StrToMap: "pair_delim key_value_delim", exp.Map: "keys! values!",
    exp.ToMap: "", exp.TimeFromParts: "hour! min! sec!", exp.ToNumber: "format!",
    exp.ArrayContains: "ensure_variant check_null", exp.Between: "low high symmetric", exp.Bracket: "offset safe",
    exp.Case: "ifs default", exp.Cast: "to", exp.TryCast: "to safe", exp.Ceil: "this!", exp.Column: "table db catalog",
    exp.Concat: "safe coalesce", exp.ConcatWs: "expressions! safe coalesce flatten", exp.Count: "this! big_int",
    exp.DPipe: "safe", exp.DateBin: "unit origin zone", exp.DateDiff: "unit date_part_boundary",
    exp.DateFromParts: "year! month! day!", exp.DateTrunc: "unit", exp.Div: "typed safe", exp.Floor: "this!",
    exp.Greatest: "ignore_nulls", exp.ILike: "negate", exp.If: "true false", exp.In: "query unnest",
    exp.Interval: "unit", exp.Is: "negate", exp.JSONExtract: "only_json_types",
    exp.JSONExtractScalar: "only_json_types scalar_only", exp.Least: "ignore_nulls", exp.Like: "negate",
    exp.Literal: "is_string",
    exp.MakeInterval: "year month week day hour minute second", exp.MapContainsKey: "key!",
    exp.VarMap: "keys! values!", exp.Nvl2: "true false", exp.Overlay: "from_! expression! for_",
    exp.Pad: "expression! fill_pattern is_left", exp.RegexpExtract: "group null_if_pos_overflow",
    exp.RegexpLike: "flag", exp.RegexpReplace: "replacement! modifiers single_replace", exp.Repeat: "times",
    exp.Replace: "replacement", exp.Round: "decimals", exp.SHA2: "length", exp.SHA2Digest: "length",
    exp.Split: "null_returns_null",
    exp.StringToArray: "null",
    exp.SplitPart: "delimiter! part_index!", exp.StrPosition: "substr", exp.StrToDate: "format!",
    exp.StrToTime: "format!", exp.StrToUnix: "format!", exp.Substring: "this! start! length",
    exp.SubstringIndex: "delimiter! count!", exp.TimeToStr: "format!",
    exp.TimestampFromParts: "year! month! day! hour! min! sec!", exp.TimestampTrunc: "unit",
    exp.Translate: "from_! to!", exp.Trim: "position", exp.Trunc: "decimals", exp.TsOrDsAdd: "unit",
    exp.TsOrDsToDate: "format safe", exp.UnixToStr: "format!", exp.UnixToTime: "scale",
    exp.WidthBucket: "min_value max_value num_buckets threshold",
}  # fmt: skip
"""What the rules read of a node beside ``this``, ``expression`` and ``expressions``: anything else is refused.

With ``!``: what must be there, and sqlglot does not ask for.
"""


_HASH = "md5() and sha2() are there"
_ANEW = "build it anew of its parts: json_build_object('a', x ->> 'a', 'b', y)"
_UUID = "a key of the row makes one that stays the same: md5(key)::uuid"
_INSTEAD = {
    **dict.fromkeys(("hash", "xxhash64", "crc32", "hashtext"), _HASH),
    **dict.fromkeys(("jsonb_set", "jsonb_insert", "jsonb_strip_nulls", "jsonb_pretty",
                     "row_to_json"), _ANEW),
    **dict.fromkeys(("uuid", "gen_random_uuid", "uuid_generate_v4"), _UUID),
    "from_json": "get_json_object(x, '$.a'), or x ->> 'a', takes text out, and a cast makes it a number",
    **dict.fromkeys(("levenshtein", "soundex"), "compute it before, or by flat_map() in Python"),
    "regexp_matches": "regexp_match() gives the groups of the first match",
    "element_at": "m['a'] is the value of a key",
    "trim_scale": "rtrim(rtrim(p::text, '0'), '.') is its text; the value is p",
    "to_char": "date_format(ts, 'yyyy-MM-dd') in spark, strftime(ts, '%Y-%m-%d') in duckdb",
    "row_number": "it has OVER: row_number() OVER (ORDER BY x)",
    "array_fill": "ARRAY[x, x]", "clock_timestamp": "now()",
}  # fmt: skip
"""What to write in place of functions that are not here."""


def nearest(name: str, dialect: str) -> str:
    """The hint for a function that there is not."""
    if name in _INSTEAD:
        return _INSTEAD[name]
    near = difflib.get_close_matches(name, NAMES[dialect], 1)
    return f"did you mean {near[0]!r}?" if near else "docs/sql-functions.md lists the functions of each dialect"
