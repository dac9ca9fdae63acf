"""Random queries with windows over an order."""

from __future__ import annotations

import random
import re

__all__ = ["RandomWindows", "in_duckdb"]

COLUMNS = {
    "r": {"a": "int", "b": "int", "s": "text", "m": "decimal"},
    "q": {"a": "int", "c": "int", "u": "text", "d": "date"},
}
DISTANCES = {"int": ("0", "1", "2"), "decimal": ("0.25", "0.5", "1"), "date": ("INTERVAL '1 day'", "INTERVAL '2 days'")}


def in_duckdb(text: str) -> str:
    """A query as DuckDB takes it, which has percentiles of windows by other names."""
    return re.sub(r"percentile_(\w+)\(([\d.]+)\) WITHIN GROUP \(ORDER BY (\w+)\)", r"quantile_\1(\3, \2)", text)


class RandomWindows:
    """A query with windows. Where ties would leave a result open, as in frames of rows, all columns are in the order.

    Which copy of a row has which of two results is open too, so that queries of several windows are over distinct rows.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.table = rng.choice(tuple(COLUMNS))
        self.columns = COLUMNS[self.table]

    def text(self) -> str:
        named, results = "", [self.result() for _ in range(self.rng.randint(1, 3))]
        if self.rng.random() < 0.3:
            named = f" WINDOW w AS (PARTITION BY {self.column()}), v AS (w ORDER BY {self.order()})"
            results.append("lag(a) OVER v")
            results.append(f"count(*) OVER (v {self.frame('ROWS', ('0', '1'))})")
        where = self.rng.choice(("", f" WHERE {self.column()} IS NOT NULL"))
        columns = [*self.columns, *(f"{text} AS c{number}" for number, text in enumerate(results))]
        distinct = f"(SELECT DISTINCT * FROM {self.table}) AS {self.table}"
        table = distinct if len(results) > 1 else self.table
        return f"SELECT {', '.join(columns)} FROM {table}{where}{named}"

    def column(self, *kinds: str) -> str:
        return self.rng.choice([name for name, kind in self.columns.items() if not kinds or kind in kinds])

    def order(self) -> str:
        """An order that decides between all rows that are not equal."""
        names = self.rng.sample([*self.columns], len(self.columns))
        return ", ".join(name + self.rng.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST")) for name in names)

    def frame(self, unit: str, distances: tuple[str, ...]) -> str:
        if unit == "RANGE":  # DuckDB 2.0.0 leaves out equal rows up to 0 PRECEDING, which are there up to CURRENT ROW
            distances = tuple(distance for distance in distances if distance != "0")
        ends = [
            "UNBOUNDED PRECEDING",
            *(f"{distance} PRECEDING" for distance in reversed(distances)),
            "CURRENT ROW",
            *(f"{distance} FOLLOWING" for distance in distances),
            "UNBOUNDED FOLLOWING",
        ]
        first, last = sorted(self.rng.sample(range(len(ends)), 2))
        exclude = self.rng.choice(
            ("", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS")
        )
        return f"{unit} BETWEEN {ends[first]} AND {ends[last]}{exclude}"

    def picking(self, name: str) -> str:
        """An aggregate that picks values, of bits or of distinct ones, or a list in an order of its own."""
        number, integer, text = self.column("int", "decimal"), self.column("int"), self.column("text")
        other = self.column("int")
        down = self.rng.choice(("", " DESC"))
        return self.rng.choice(
            (
                f"sum(DISTINCT {number})", f"avg(DISTINCT {integer})", f"median(DISTINCT {integer})",
                f"median({integer})", f"percentile_cont(0.3) WITHIN GROUP (ORDER BY {integer})",
                f"percentile_disc(0.7) WITHIN GROUP (ORDER BY {name})", f"bit_and({integer})", f"bit_or({integer})",
                f"bit_xor({integer})", f"bool_or({integer} > 1)", f"count(DISTINCT {name})",
                f"max_by({integer}, {other} * 1000 - {integer})", f"min_by({integer}, {other} * 1000 - {integer})",
                f"array_agg(DISTINCT {name} ORDER BY {name}{down})", f"string_agg({text}, '+' ORDER BY {text}{down})",
                f"array_agg({name} ORDER BY {integer}{down}, {name})",
            )
        )  # fmt: skip

    def result(self) -> str:
        parts = [f"PARTITION BY {self.column()}"] * (self.rng.random() < 0.7)
        name, draw = self.column(), self.rng.random()
        nulls = " IGNORE NULLS" if self.rng.random() < 0.4 else ""
        if draw < 0.2:
            function = f"{self.rng.choice(('lag', 'lead'))}({name}, {self.rng.randrange(1, 3)}, {name}{nulls})"
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {self.order()}'])})"
        if draw < 0.4:
            function = self.rng.choice(
                (f"first_value({name}{nulls})", f"last_value({name}{nulls})", f"nth_value({name}, 2{nulls})")
            )
            frame = self.frame("ROWS", ("0", "1", "2"))
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {self.order()}', frame])})"
        if draw < 0.55:
            function = self.rng.choice(("percent_rank()", "cume_dist()", "rank()", "dense_rank()"))
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {name}'])})"
        if draw < 0.65:
            function = self.rng.choice(("ntile(2)", "ntile(3)", "row_number()"))
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {self.order()}'])})"
        number, where = self.column("int", "decimal"), self.rng.choice(("", "", f" FILTER (WHERE {name} IS NOT NULL)"))
        function = self.rng.choice(
            ("count(*)", f"count({name})", f"sum({number})", f"min({name})", f"max({name})", f"avg({number})")
        )
        if self.rng.random() < 0.5:
            function = self.picking(name)
        after = ""
        unit = self.rng.choice(("", "ROWS", "GROUPS", "RANGE"))
        if self.rng.random() < 0.25:  # which other engines compute of rounded sums
            name_of = self.rng.choice(("stddev", "var_pop", "variance"))
            function, after = f"{name_of}({self.column('int')})", " > 0.437"
        elif unit == "ROWS" and self.rng.random() < 0.3:
            text = self.column("text")
            function = self.rng.choice((f"array_agg({name})", f"string_agg({text}, '+')"))
        if unit == "RANGE":
            name = self.column("int", "decimal", "date")
            frame = self.frame("RANGE", DISTANCES[self.columns[name]])
            order = name + self.rng.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
        else:
            frame = self.frame(unit, ("0", "1", "2")) if unit else ""
            order = self.order() if unit == "ROWS" else name
        return f"{function}{where} OVER ({' '.join([*parts, f'ORDER BY {order}', frame])}){after}"
