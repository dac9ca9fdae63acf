"""The rules of values: what each kind of expression means, and which of its arguments are read.

:mod:`ddcore.sql.functions` fills the rules in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

__all__ = ["READ", "RULES"]

RULES: dict[type[exp.Expr], Callable[..., Any]] = {}
"""By the kind of a node, a function of the values around and the node."""
READ: dict[type[exp.Expr], str] = {
    exp.Array: "bracket_notation", exp.Between: "low high", exp.Bracket: "offset", exp.Case: "ifs default",
    exp.Cast: "to", exp.Ceil: "this!", exp.Column: "table db catalog", exp.Concat: "safe coalesce",
    exp.ConcatWs: "expressions! safe coalesce", exp.Count: "this! big_int", exp.DateBin: "unit origin zone",
    exp.DateTrunc: "unit", exp.Div: "typed safe", exp.DPipe: "safe", exp.Floor: "this!", exp.Greatest: "ignore_nulls",
    exp.If: "true false", exp.ILike: "negate", exp.In: "query unnest", exp.Interval: "unit", exp.Is: "negate",
    exp.Least: "ignore_nulls", exp.Like: "negate", exp.Literal: "is_string", exp.Overlay: "from_! expression! for_",
    exp.Pad: "expression! fill_pattern is_left", exp.RegexpLike: "flag",
    exp.RegexpReplace: "replacement! modifiers single_replace", exp.Repeat: "times", exp.Replace: "replacement",
    exp.Round: "decimals", exp.SplitPart: "delimiter! part_index!", exp.StrPosition: "substr",
    exp.StrToDate: "format!", exp.StrToTime: "format!", exp.Substring: "this! start! length", exp.TimeToStr: "format!",
    exp.TimestampFromParts: "year! month! day! hour! min! sec!", exp.TimestampTrunc: "unit",
    exp.Translate: "from_! to!", exp.Trim: "position", exp.Trunc: "decimals",
    exp.WidthBucket: "min_value max_value num_buckets",
}  # fmt: skip
"""What the rules read of a node beside ``this``, ``expression`` and ``expressions``: anything else is refused.

With ``!``: what must be there, and sqlglot does not ask for.
"""
