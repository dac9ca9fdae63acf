"""Random queries of SQL, for a dialect of ddcore and for one other engine. Where they have other words for the same, a
query has two texts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from sql_tables import TARGETS, TEXTS, Named, Target, kind_of
from sql_time_windows import groups_by_window, windows
from sql_types import KINDS as MORE_KINDS
from sql_types import RandomTypes
from two_texts import both, texts


class RandomQuery:
    """A query by a seed: the same text for the same seed."""

    def __init__(self, rng: random.Random, target: Target = TARGETS["duckdb"]) -> None:
        self.rng, self.target, self._aliases = rng, target, 0
        self._kinds = ["int", "text", "decimal", "bool", "int", "decimal"]
        self._kinds += ["date"] * target.has("dates") + ["moment"] * target.has("moments")
        self._kinds += ["list"] * target.has("lists") + ["float"] * target.has("quotients")
        self._types = RandomTypes(rng, target)
        self._kinds += self._types.results

    def texts(self) -> tuple[str, str]:
        """A query with columns c0, c1, ... for ddcore and for the other engine."""
        return texts(self.query(2, [])[0])

    def query(self, depth: int, outer: list[Named], kinds: Sequence[str] | None = None) -> tuple[str, list[str]]:
        """A query and the kinds of its columns, which are called c0, c1, ..."""
        kinds = list(kinds or self.rng.choices(self._kinds, k=self.rng.randint(1, 3)))
        draw = self.rng.random()
        if depth and draw < 0.2:
            operation = self.rng.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))
            left, right = (self.query(depth - 1, outer, kinds)[0] for _ in range(2))
            return f"({left}) {operation} ({right})", kinds
        if depth and draw < 0.45 and self._types.aggregates >= {*kinds}:
            return self._grouped(depth, outer, kinds), kinds
        return self._plain(depth, outer, kinds), kinds

    def _plain(self, depth: int, outer: list[Named], kinds: Sequence[str]) -> str:
        tables, columns = self._tables(depth, outer)
        scope = columns + outer if self.rng.random() < 0.3 else columns
        values = [
            self._window(kind, columns)
            if kind in ("int", "decimal") and self.rng.random() < 0.1
            else self.value(kind, scope, depth)
            for kind in kinds
        ]
        results = ", ".join(f"{value} AS c{i}" for i, value in enumerate(values))
        where = self._where(columns, outer, depth)
        distinct = "DISTINCT " if self.rng.random() < 0.2 else ""
        text = f"SELECT {distinct}{results} FROM {tables}{where}"
        if self.rng.random() < 0.15 and not {"list", "texts", "struct", "map"} & {*kinds}:  # these have no order here
            keys = [
                f"{i}{self.rng.choice(('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}"
                for i in range(1, len(kinds) + 1)
            ]
            text += f" ORDER BY {', '.join(keys)} LIMIT {self.rng.randrange(4)}"
            if self.rng.random() < 0.3:
                text += f" OFFSET {self.rng.randrange(1, 3)}"
        return text

    def _grouped(self, depth: int, outer: list[Named], kinds: Sequence[str]) -> str:
        tables, columns = self._tables(depth, outer)
        kinds_of_keys = ["int", "text", "bool"] * 2 + self._types.kinds
        kinds_of_keys = self.rng.choices(kinds_of_keys, k=self.rng.randrange(3))
        keys = [
            self._some(kind, columns) if kind == "struct" else self.value(kind, columns, 0) for kind in kinds_of_keys
        ]
        keys = [key for key in keys if any(name in key for name, _ in columns)]
        values = [self.aggregate(kind, columns, depth) for kind in kinds]
        if keys and self.rng.random() < 0.5:
            values = [
                f"grouping({self.rng.choice(keys)})" if kind == "int" and self.rng.random() < 0.4 else value
                for kind, value in zip(kinds, values, strict=True)
            ]
        results = ", ".join(f"{value} AS c{i}" for i, value in enumerate(values))
        text = f"SELECT {results} FROM {tables}{self._where(columns, outer, depth)}"
        if keys:
            text += f" GROUP BY {self._sets(keys)}"
        if self.rng.random() < 0.3:
            sign = self.rng.choice(("<", ">", "<>"))
            text += f" HAVING {self.aggregate('int', columns, depth)} {sign} {self.rng.randrange(4)}"
        return text

    def _sets(self, keys: Sequence[str]) -> str:
        """What to group by: the keys, or sets of them."""
        draw, all_ = self.rng.random(), ", ".join(keys)
        if draw < 0.3:
            return f"{self.rng.choice(('ROLLUP', 'CUBE'))} ({all_})"
        if draw < 0.4:
            return f"GROUPING SETS (({all_}), {self.rng.choice(keys)}, {self.rng.choice(('()', keys[-1]))})"
        return f"({all_})" if draw < 0.5 else all_

    def _where(self, columns: list[Named], outer: list[Named], depth: int) -> str:
        parts = [self.condition(columns, outer, depth) for _ in range(self.rng.randrange(3))]
        if outer and self.rng.random() < 0.7:
            inside, outside = self._some("int", columns), self._some("int", outer)
            if inside and outside:
                parts.append(f"{inside} {self.rng.choice(('=', '=', '=', '<', '<>'))} {outside}")
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    # -- FROM ---------------------------------------------------------------------------------------------------------

    def _tables(self, depth: int, outer: list[Named]) -> tuple[str, list[Named]]:
        inside = outer if self.rng.random() < 0.5 else []
        text, columns = self._table(depth, inside)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            if self.rng.random() < 0.25 and self._some("int", columns) and self.target.has("unnest"):
                text, columns = self._beside(text, columns)
                continue
            other, more = self._bracket(depth) if self.rng.random() < 0.15 else self._table(depth)
            kinds = ("JOIN", "JOIN", "LEFT JOIN", "CROSS JOIN", "RIGHT JOIN", "FULL JOIN")
            kind = self.rng.choice(kinds[: 4 if inside else 6])  # ddcore refuses the last two there
            both = columns + more
            if kind == "CROSS JOIN":
                text, columns = f"{text} CROSS JOIN {other}", both
                continue
            left, right = self._equal_columns(columns, more)
            on = f"{left} = {right}" if left and right else "1 = 1"
            if self.rng.random() < 0.3 and kind != "FULL JOIN":
                on += f" AND {self.condition(both, [], 0)}"
            text, columns = f"{text} {kind} {other} ON {on}", both
        return text, columns

    def _equal_columns(self, columns: list[Named], more: list[Named]) -> tuple[str, str]:
        """A column of either side that a join compares: whole numbers, or now and then another kind that both have."""
        both_have = [kind for kind in self._types.joined if self._some(kind, columns) and self._some(kind, more)]
        kind = self.rng.choice(both_have) if both_have and self.rng.random() < 0.6 else "int"
        return self._some(kind, columns), self._some(kind, more)

    def _bracket(self, depth: int) -> tuple[str, list[Named]]:
        """A join in parentheses."""
        (left, own), (right, others) = self._table(depth and depth - 1), self._table(depth and depth - 1)
        one, other = self._some("int", own), self._some("int", others)
        on = f"{one} = {other}" if one and other else "1 = 1"
        return f"({left} {self.rng.choice(('JOIN', 'LEFT JOIN', 'FULL JOIN'))} {right} ON {on})", own + others

    def _beside(self, text: str, columns: list[Named]) -> tuple[str, list[Named]]:
        """Tables and the nearest row of another one, or a series or the elements of a list that depend on them."""
        self._aliases += 1
        alias, value, draw = f"t{self._aliases}", self._some("int", columns), self.rng.random()
        if draw < 0.3 or not self.target.has("series"):
            names, location = self.rng.choice((("e", ""), ("e, i", " WITH ORDINALITY")))
            lists = self._list(columns)
            if self.target.has("several lists") and self.rng.random() < 0.4:
                lists, names = f"{lists}, {self._list(columns)}", f"o, {names}"
            elements = f"unnest({lists}){location} AS {alias}({names})"
            on = self.rng.choice(("CROSS JOIN {}", "LEFT JOIN LATERAL {} ON true"))
            return f"{text} {on.format(elements)}", [
                *columns,
                *((f"{alias}.{name}", "int") for name in names.split(", ")),
            ]
        if draw < 0.6 or not self.target.has("asof"):
            series = f"generate_series({self.rng.randrange(3)}, least({value}, 3)) AS {alias}(i)"
            on = self.rng.choice(("CROSS JOIN {}", "LEFT JOIN LATERAL {} ON true"))
            return f"{text} {on.format(series)}", [*columns, (f"{alias}.i", "int")]
        key, time = ("a", "c") if self.rng.random() < 0.5 else ("c", "a")
        sign, how = self.rng.choice(("<", "<=", ">", ">=")), self.rng.choice(("", "LEFT "))
        other = f"(SELECT DISTINCT {key} AS k, {time} AS v FROM q) AS {alias}"
        on = f"{self._some('int', columns)} = {alias}.k AND {value} {sign} {alias}.v"
        return f"{text} ASOF {how}JOIN {other} ON {on}", [*columns, (f"{alias}.k", "int"), (f"{alias}.v", "int")]

    def _window(self, kind: str, scope: list[Named]) -> str:
        """A window whose result does not depend on the order of equal rows."""
        by = self._some(self.rng.choice(("int", "text", "bool", *self._types.kinds)), scope)
        order = self._some(self.rng.choice(("int", "text", "decimal", *self._types.ordered)), scope)
        over = f"PARTITION BY {by} " if by and self.rng.random() < 0.7 else ""
        if order and self.rng.random() < 0.7:
            over += f"ORDER BY {order}{self.rng.choice(('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}"
        value = self._leaf(kind, scope)
        names = ["rank()", "dense_rank()", "count(*)", f"count({value})"] if kind == "int" and "ORDER" in over else []
        names += [f"{name}({value})" for name in ("sum", "min", "max")]
        if kind == "int" and (other := self._types.any_of(self._types.kinds, scope)):
            names.append(f"count({other[0]})")
        name = self.rng.choice(names)
        return self._whole(kind, name, f"{name} OVER ({over})")

    def _whole(self, kind: str, name: str, text: str) -> str:
        """An aggregate; PostgreSQL's sum of integers has digits after the point in quotients."""
        is_numeric = kind == "int" and name.startswith("sum") and self.target.has("numeric sums")
        return both(text, f"CAST({text} AS bigint)") if is_numeric else text

    def _table(self, depth: int, outer: Sequence[Named] = ()) -> tuple[str, list[Named]]:
        self._aliases += 1
        alias = f"t{self._aliases}"
        if depth and self.rng.random() < 0.2:
            text, kinds = self.query(depth - 1, list(outer))
            return f"({text}) AS {alias}", [(f"{alias}.c{i}", kind) for i, kind in enumerate(kinds)]
        table, schema = self.rng.choice(tuple(self.target.tables.items()))
        columns = [
            (f"{alias}.{name}", MORE_KINDS.get(name, "int") if table == "p" else kind_of(kind))
            for name, kind in schema.items()
        ]
        if table == "q" and self.rng.random() < 0.2 and self.target.has("windows"):
            if self.rng.random() < 0.3:
                return f"({groups_by_window(self.rng, self.target.engine)}) AS {alias}", [
                    (f"{alias}.w", "moment"),
                    (f"{alias}.n", "int"),
                ]
            ends = [(f"{alias}.{name}", "moment") for name in ("window_start", "window_end")]
            return f"{windows(self.rng, self.target.engine, [*schema])} AS {alias}", columns + ends
        return f"{table} AS {alias}", columns

    # -- values -------------------------------------------------------------------------------------------------------

    def _some(self, kind: str, scope: Sequence[Named]) -> str:
        fitting = [name for name, item in scope if item == kind]
        return self.rng.choice(fitting) if fitting else ""

    def value(self, kind: str, scope: list[Named], depth: int) -> str:  # noqa: PLR0911, PLR0912  (one case, one return)
        """A value of a kind over the columns of ``scope``."""
        draw, column = self.rng.random(), self._some(kind, scope)
        if kind == "float":
            below = self._leaf("int", scope)
            return f"({self._leaf('int', scope)} / {below if self.target.has('infinity') else f'nullif({below}, 0)'})"
        if column and draw < 0.6:
            return column
        if kind in self._types.results and draw > 0.8:
            return self._types.value(kind, scope) or self._leaf(kind, scope)
        if depth and draw < 0.68 and kind in ("int", "decimal"):
            return f"({self._scalar(kind, scope, depth)})"
        if draw < 0.75:
            test = f"{self._leaf('int', scope)} {self.rng.choice(('<', '=', '<>'))} {self._leaf('int', scope)}"
            return f"CASE WHEN {test} THEN {self._leaf(kind, scope)} ELSE {self._leaf(kind, scope)} END"
        if draw < 0.8:
            return f"coalesce({self._leaf(kind, scope)}, {self.literal(kind)})"
        if kind == "bool" and depth:
            return f"({self.condition(scope, [], depth - 1)})"
        if kind == "int" and draw > 0.9:
            return self._number_of(scope)
        if column and kind == "int" and draw < 0.95:
            return self._sum(column)
        if column and kind == "decimal" and draw < 0.95:
            factors = ("0.5", "2", *(name for name, _ in scope if name.endswith(".m")))
            return f"({column} {self.rng.choice(('+', '-', '*'))} {self.rng.choice(factors)})"
        if column and kind in ("date", "moment") and draw < 0.95:
            return self._moved(kind, column)
        if kind == "list":
            return self._list(scope)
        if kind == "text" and draw > 0.9 and (others := self._types.texts(scope)):
            return self.rng.choice(others)
        if column and kind == "text" and draw < 0.95:
            return self.rng.choice((f"upper({column})", f"({column} || 'z')", f"substring({column} from 1 for 1)"))
        return self.literal(kind)

    def _moved(self, kind: str, column: str) -> str:
        sign = self.rng.choice(("+", "-"))
        if kind == "date":
            return f"({column} {sign} {self.rng.randrange(3)})"
        if self.rng.random() < 0.5:
            return f"date_trunc('{self.rng.choice(('hour', 'day'))}', {column})"
        return f"({column} {sign} INTERVAL '{self.rng.choice(('45 minutes', '1 day'))}')"

    def _sum(self, column: str) -> str:
        """Arithmetic of whole numbers. What a division by 0 gives differs: null as in DuckDB, or an error."""
        sign, operand = self.rng.choice(("+", "-", "*", "/", "%")), self.rng.choice(("2", "3", "-2", column))
        if sign in "/%" and operand == column and not self.target.has("null / 0"):
            operand = f"nullif({operand}, 0)"
        if sign == "/":
            sign = {"duckdb": "//", "spark": "div"}.get(self.target.dialect, "/")
        return f"({column} {sign} {operand})"

    def _number_of(self, scope: list[Named]) -> str:
        """A whole number that something else has: a list, a moment, two dates."""
        listed, day, moment = (self._some(kind, scope) for kind in ("list", "date", "moment"))
        length = "len" if self.target.dialect == "duckdb" else "cardinality"
        choices = [self.literal("int")]
        if listed and self.target.has("lists"):
            choices += [
                both(f"{length}({listed})", f"{'len' if self.target.engine == 'duckdb' else 'cardinality'}({listed})")
            ]
            choices += [f"{listed}[{self.rng.randrange(1, 3)}]"]
        if day and self.target.has("dates"):
            choices.append(f"({day} - date '2024-02-01')")
        if moment and self.target.has("moments"):
            part = f"extract({self.rng.choice(('hour', 'minute', 'day'))} FROM {moment})"
            choices.append(f"CAST({part} AS bigint)")
        if found := self._types.numbers(scope):
            choices.append(self.rng.choice(found))
        return self.rng.choice(choices)

    def _list(self, scope: list[Named]) -> str:
        column = self._some("list", scope)
        if column and self.rng.random() < 0.6:
            return column
        return f"ARRAY[{self._leaf('int', scope)}, {self._leaf('int', scope)}]"

    def _leaf(self, kind: str, scope: list[Named]) -> str:
        return self._some(kind, scope) or self.literal(kind)

    def literal(self, kind: str) -> str:
        """A constant."""
        if kind in self._types.results:
            return self._types.literal(kind)
        if kind == "int":
            return str(self.rng.randrange(4))
        if kind == "text":
            return f"'{self.rng.choice(TEXTS)}'"
        return {
            "decimal": "0.25", "bool": "true", "date": "date '2024-02-01'", "moment": "timestamp '2024-02-01 00:30:00'",
            "list": "ARRAY[1, 2]", "float": "(1 / 2)",
        }[kind]  # fmt: skip

    def aggregate(self, kind: str, scope: list[Named], depth: int) -> str:  # noqa: PLR0911
        """An aggregate of a kind."""
        where = f" FILTER (WHERE {self.condition(scope, [], 0)})" if self.rng.random() < 0.2 else ""
        rich = self.target.has("aggregates")
        if kind == "int":
            name = self.rng.choice(self._counts(scope) + (self._more_counts(scope) if rich else []))
            return self._whole(kind, name, name + where)
        if kind == "decimal":
            return f"{self.rng.choice(('sum', 'min', 'max'))}({self.value('decimal', scope, 0)}){where}"
        if kind == "float":
            return f"avg({self.value('int', scope, 0)}){where}"
        if kind == "list":
            value = self.value("int", scope, 0)
            return f"array_agg({value} ORDER BY {value}{self.rng.choice(('', ' DESC', ' NULLS FIRST'))}){where}"
        if kind == "bool":
            return self._truth(scope, where)
        if kind in self._types.results:
            return self._types.aggregate(kind, self.value(kind, scope, 0), where)
        text, other = self._some("text", scope), self._some("int", scope)
        if kind == "text" and text and other and rich and self.rng.random() < 0.3:
            order = self.rng.choice((f"{text} DESC NULLS LAST", f"{other}, {text}", f"{other} DESC NULLS LAST, {text}"))
            return f"string_agg({text}, '+' ORDER BY {order}){where}"
        return f"{self.rng.choice(('min', 'max'))}({self.value(kind, scope, 0)}){where}"

    def _truth(self, scope: list[Named], where: str) -> str:
        """A truth of a group: of its truths, or whether a statistic of it is large."""
        if self.rng.random() < 0.6:
            return f"{self.rng.choice(('bool_and', 'bool_or'))}({self.value('bool', scope, 0)}){where}"
        names = ["stddev", "var_pop", "variance", "stddev_pop", "median"]
        name = self.rng.choice(names + ["avg(DISTINCT"] * self.target.has("aggregates"))
        value = self.value("int", scope, 0) if self.rng.random() < 0.5 else self._short(scope)
        if name == "median" and self.target.engine == "postgres":
            median = both(f"median({value})", f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {value})")
            return f"({median}{where} > 0.437)"
        return f"({name}({value}{')' * name.count('(')}){where} > 0.437)"

    def _short(self, scope: list[Named]) -> str:
        """A decimal of few digits: there is no variance of those with more than 18."""
        names = [name for name, _ in scope if name.endswith((".m", ".g"))]
        return self.rng.choice(names) if names else "0.25"

    def _counts(self, scope: list[Named]) -> list[str]:
        choices = ["count(*)", f"count({self.value('text', scope, 0)})"]
        if column := self._some("int", scope):
            choices += [f"{name}({column})" for name in ("sum", "min", "max", "count")]
            choices += [f"count(DISTINCT {column})"]
        if found := self._types.any_of(self._types.kinds, scope):
            choices += [f"count(DISTINCT {found[0]})", f"count({found[0]})"]
        return choices

    def _more_counts(self, scope: list[Named]) -> list[str]:
        """Those that only the default dialect has."""
        column = self._some("int", scope)
        if not column:
            return []
        return [
            f"sum(DISTINCT {column})",
            f"count(DISTINCT ({column}, {self.value('text', scope, 0)}))",
            *(f"bit_{name}({column})" for name in ("and", "or", "xor")),
            f"percentile_disc({self.rng.choice((0, 0.3, 0.5))}) WITHIN GROUP (ORDER BY {column})",
            f"regr_count({column}, {self.value('decimal', scope, 0)})",
        ]

    def _scalar(self, kind: str, scope: list[Named], depth: int) -> str:
        scope = scope if self.target.has("around") else []
        tables, columns = self._tables(depth - 1, scope)
        return f"SELECT {self.aggregate(kind, columns, 0)} FROM {tables}{self._where(columns, scope, depth - 1)}"

    # -- conditions ---------------------------------------------------------------------------------------------------

    def condition(self, scope: list[Named], outer: list[Named], depth: int) -> str:  # noqa: PLR0911
        """A condition, which may hold subqueries where there is depth left."""
        draw = self.rng.random()
        if depth and draw < 0.3:
            return self._asking(scope, depth)
        if draw < 0.36:
            return f"NOT ({self.condition(scope, outer, depth and depth - 1)})"
        if draw < 0.46:
            left, right = (self.condition(scope, outer, depth and depth - 1) for _ in range(2))
            return f"({left} OR {right})"
        if draw > 0.5 and self.rng.random() < 0.5 and (other := self._types.condition(scope)):
            return other
        kind = self.rng.choice(("int", "int", "text", "decimal", "date", "bool", "moment"))
        column = self._some(kind, scope)
        if kind == "int" and column and draw > 0.92 and self.target.has("any of lists"):
            sign, quantifier = self.rng.choice(("=", "<>", "<", ">=", "<=", ">")), self.rng.choice(("ANY", "ALL"))
            return f"{column} {sign} {quantifier}({self._list(scope)})"
        if not column:
            return f"{self._leaf('int', scope)} < 2"
        if draw < 0.6:
            return f"{column} IS {self.rng.choice(('', 'NOT '))}NULL"
        if draw < 0.7 and kind in ("int", "text"):
            listed = [self.literal(kind) for _ in range(2)] + (["NULL"] if self.rng.random() < 0.2 else [])
            return f"{column} {self.rng.choice(('', 'NOT '))}IN ({', '.join(listed)})"
        if draw < 0.75 and kind == "text":
            return f"{column} {self.rng.choice(('', 'NOT '))}LIKE '{self.rng.choice(('x%', '%y', '_', '%b_', ''))}'"
        if draw < 0.8 and kind == "int":
            return f"{column} BETWEEN 0 AND 2"
        if draw < 0.85:
            other = column if kind == "date" else self.value(kind, scope, 0)
            return f"{column} IS {self.rng.choice(('', 'NOT '))}DISTINCT FROM {other}"
        if kind == "bool":
            return column
        sign = self.rng.choice(("=", "<>", "<", ">=", "<=", ">"))
        return f"{column} {sign} {self.value(kind, scope, 0) if kind != 'date' else self.literal(kind)}"

    def _asking(self, scope: list[Named], depth: int) -> str:
        negated, subject = self.rng.choice(("", "NOT ")), self._leaf("int", scope)
        column, text = self._some("int", scope), self._some("text", scope)
        scope = scope if self.target.has("around") else []
        if self.rng.random() < 0.5:
            tables, columns = self._tables(depth - 1, scope)
            select = self.rng.choice(("1", "*", "count(*)"))
            return f"{negated}EXISTS (SELECT {select} FROM {tables}{self._where(columns, scope, depth - 1)})"
        if column and text and self.rng.random() < 0.2:  # DuckDB knows it only without the query around
            tables, columns = self._tables(depth - 1, [])
            query = f"SELECT {self.value('int', columns, 0)}, {self.value('text', columns, 0)} FROM {tables}"
            return f"({column}, {text}) {negated}IN ({query}{self._where(columns, [], depth - 1)})"
        tables, columns = self._tables(depth - 1, scope)
        inner = self.value("int", columns, 0)
        query = f"SELECT {inner} FROM {tables}{self._where(columns, scope, depth - 1)}"
        if self.target.has("quantifiers") and self.rng.random() < 0.4:
            sign, quantifier = self.rng.choice(("=", "<>", "<", ">=", "<=", ">")), self.rng.choice(("ANY", "ALL"))
            return f"{subject} {sign} {quantifier} ({query})"
        return f"{subject} {negated}IN ({query})"
