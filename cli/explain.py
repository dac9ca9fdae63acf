"""``dd explain``: the input rows on which a row of an output rests, or the changes of inputs that moved it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddcore.base.errors import UsageError
from ddcore.cli.completion import version_names
from ddcore.cli.options import (
    DebugOption,
    JsonOption,
    OrBeforeOption,
    OutputArgument,
    ProjectOption,
    WarehouseOption,
    limit_option,
    open_project,
)
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import aligned, cell, count, plain
from ddcore.io.project.times import Time, json_time, shown
from ddcore.text.wording import listed, meant

if TYPE_CHECKING:
    import polars as pl

    from ddcore.base.schema import Schema, Type
    from ddcore.explaining import Explanation
    from ddcore.explaining.derivation import Fact
    from ddcore.io.ledger.readable import Readable
    from ddcore.jobs.explain import Explaining, Origin

__all__ = ["explain"]

_SOURCES = 3  # that are named of several
_ROWS = 3  # that are explained unless --limit says otherwise
_INPUTS, _FACTS = 20, 40  # rows of inputs, and lines of a derivation, that people are shown unless they ask for all
_PASSED_ON = ("concat", "variable", "leave")  # operators whose rows are those of an input
_ROUND_BITS = 32  # a priority is packed above the round: see ddcore.operators.priority
_FIRST_PRIORITY = 2**29 + 1


def explain(
    output: OutputArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A B] COLUMN=VALUE...",
            help="The row: values of some of its columns; null stands for no value, '\"null\"' for the text. With two "
            "versions before it, or A..B: which changes of inputs after A, up to B, moved the rows with these values.",
            show_default=False,
            autocompletion=version_names,
        ),
    ] = None,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="V",
            help="As of this version, inclusive: a number, latest, an offset: -1, a label, or a date: 2026-11-19, "
            "yesterday. With several time dimensions: day=7,revision=1. Default: latest.",
            show_default=False,
            autocompletion=version_names,
        ),
    ] = None,
    or_before: OrBeforeOption = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Fold again, from nothing: the named rows alone, without each of them, and all other rows.",
        ),
    ] = False,
    limit: Annotated[int | None, limit_option(f"Explain at most N rows; 0 for all. Default: {_ROWS}.")] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--all",
            help=f"Show all input rows and all steps. Default: {_INPUTS} rows of each input and {_FACTS} steps; with "
            "--json all.",
        ),
    ] = False,
    as_json: JsonOption = False,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    debug: DebugOption = False,
) -> int:
    """Show the input rows on which rows of OUTPUT rest, and how the program makes them of these.

    The program gives the row for these input rows alone, and without any one of them it does not. Each line of the
    derivation is a row, with the operator that makes it, its place in the program and the rounds of the loops around.
    With two versions: the changes of inputs that moved the rows.
    """
    out = Output(json=as_json)
    settings = open_project(project, warehouse=warehouse)
    from ddcore.cli.notices import notices
    from ddcore.io.ledger.readable import Readable
    from ddcore.io.project.times import nothing_closed
    from ddcore.jobs.explain import Explaining

    with notices(out):
        explaining = Explaining(settings, output)
        dims, claims = settings.dims, explaining.verification.claims
        readable = Readable(dims, claims.since or nothing_closed(dims), claims.upper, explaining.names)
        versions, pairs = _divided(words or (), explaining.schema, output)
        key = _key(pairs, explaining.schema, output)
        if versions:
            if at is not None or check or limit is not None:
                option = "--at" if at is not None else "--check" if check else "--limit"
                raise UsageError(f"explain takes two versions or {option}, not both", "leave one of them out")
            _tell_causes(out, explaining, _span(versions, readable, or_before=or_before), key, whole=whole)
        else:
            time = readable.time(at or "latest", "--at", or_before=or_before)
            _tell_rows(
                out, explaining, time, key, "--at" if at else "explain",
                limit=_ROWS if limit is None else limit, check=check, whole=whole,
            )  # fmt: skip
    return 0


# --- the command line -------------------------------------------------------------------------------------------------


def _divided(words: Sequence[str], schema: Schema, output: str) -> tuple[list[str], dict[str, str]]:
    """The versions and the columns with their values; UsageError for a word that is neither."""
    versions: list[str] = []
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in schema:
            if name in values:
                raise UsageError(f"{name} has two values: {values[name]!r} and {value!r}", "give one")
            values[name] = value
        elif values:
            what = f"{output} has no column {name!r}; it has: {', '.join(schema)}"
            hint = meant(name, schema) or ("" if equals else "two versions are written before the row")
            raise UsageError(what if equals else f"{word!r} is no COLUMN=VALUE", hint)
        else:
            versions.append(word)
    if not values:
        column = versions[0].partition("=")[0] if versions and "=" in versions[0] else ""
        if column:
            raise UsageError(f"{output} has no column {column!r}; it has: {', '.join(schema)}", meant(column, schema))
        said = f": {versions[0]!r} is no COLUMN=VALUE" if len(versions) == 1 and ".." not in versions[0] else ""
        value = versions[0] if said else "VALUE"
        hint = f"say which one by values of its columns, which are {listed(schema)}: "
        word = shlex.quote(f"{next(iter(schema))}={value}")
        raise UsageError(f"explain {output} names no row{said}", f"{hint}ddcore explain {output} {word}")
    return versions, values


def _span(versions: Sequence[str], readable: Readable, *, or_before: bool) -> tuple[Time | None, Time]:
    if len(versions) > 2:
        raise UsageError(f"explain takes two versions, not {len(versions)}: {' '.join(versions)}", "say A B or A..B")
    if len(versions) == 1 and ".." not in versions[0]:
        raise UsageError(
            f"explain takes two versions, or none, got {versions[0]!r}", f"the row at one version: --at {versions[0]}"
        )
    return readable.range(versions[0], versions[1] if len(versions) > 1 else None, or_before=or_before)


def _key(values: Mapping[str, str], schema: Schema, output: str) -> pl.DataFrame:
    """One row of the values; UsageError for one that its column cannot have."""
    import polars as pl

    columns = []
    for name, text in values.items():
        kind = schema[name]
        if kind.is_nested:
            raise UsageError(f"{output}: {name} is {kind}: a row is named by other columns", f"of {listed(schema)}")
        try:
            columns.append(pl.Series(name, [_value(text, kind)], dtype=kind.polars))
        except (ValueError, ArithmeticError, pl.exceptions.PolarsError):
            raise UsageError(
                f"{name}={text}: {text!r:.60} is no {kind}", f"as `ddcore show {output}` prints it"
            ) from None
    return pl.DataFrame(columns)


def _value(text: str, kind: Type) -> Any:
    """The value that a text spells. Raises ValueError or a Polars error."""
    import polars as pl

    if text == "null":
        return None
    if kind.name == "string":
        quoted = len(text) > 1 and text[0] == text[-1] == '"'
        return json.loads(text) if quoted else text
    if kind.name == "bool":
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    if kind.name == "timestamp":
        from datetime import UTC, datetime

        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if kind.name == "date":
        from datetime import date

        return date.fromisoformat(text)
    return pl.Series([text]).cast(kind.polars, strict=True)[0]


def _spelled(key: pl.DataFrame) -> str:
    return ", ".join(f"{name}={cell(key[name][0])}" for name in key.columns)


# --- a row ------------------------------------------------------------------------------------------------------------


def _tell_rows(
    out: Output,
    explaining: Explaining,
    time: Time,
    key: pl.DataFrame,
    origin: str,
    *,
    limit: int,
    check: bool,
    whole: bool,
) -> None:
    explaining.require(time, origin)
    rows, dims = explaining.rows(time, key), explaining.plan.dims
    if rows.is_empty():
        words = " ".join(shlex.quote(f"{name}={cell(key[name][0])}") for name in key.columns)
        raise UsageError(
            f"{explaining.output} has no row with {_spelled(key)} at {explaining.names.named(time)}",
            f"rows that are there: ddcore show {explaining.output} --at {shown(time, dims)}; if it was there at A and "
            f"not at B, what took it away: ddcore explain {explaining.output} A B {words}",
        )
    _tell_head(out, explaining, at=json_time(time, dims), rows=len(rows), **explaining.names.fields(time))
    if not out.json:
        out.data(f"at {explaining.names.shown(time)}")
    part = rows.head(limit) if limit else rows
    for number in range(len(part)):
        if out.unread:
            return
        row = part[number]
        explanation = explaining.explanation(time, row.drop("diff"))
        _tell_explanation(out, explaining, explanation, row, time, whole=whole)
        if check:
            _tell_check(out, explaining, explanation, row, time)
    if len(rows) > len(part):
        out.say(f"... and {count(len(rows) - len(part))} more rows with {_spelled(key)}; all of them with --limit 0")


def _tell_head(out: Output, explaining: Explaining, **fields: Any) -> None:
    if out.json:
        schema = {name: str(kind) for name, kind in explaining.schema.items()}
        out.record(schema_version=SCHEMA_VERSION, output=explaining.output, schema=schema)
        out.record(**fields)
    else:
        columns = ", ".join(f"{name} {kind}" for name, kind in explaining.schema.items())
        out.data((f"{explaining.output} ({columns})", "bold"))


def _tell_explanation(
    out: Output, explaining: Explaining, explanation: Explanation, row: pl.DataFrame, time: Time, *, whole: bool
) -> None:
    values = row.drop("diff").row(0, named=True)
    if out.json:
        out.record(row=_plain(values), count=row["diff"][0], rests_on=_total(explanation.inputs))
    else:
        out.data()
        total = _total(explanation.inputs)
        out.data("row ", (cell(values), "bold"), f" rests on {count(total)} input {'row' if total == 1 else 'rows'}:")
    _tell_inputs(out, explaining, explanation.inputs, None, time, sign=False, whole=whole)
    if out.json:
        _json_derivation(out, explanation)
    else:
        out.data()
        _text_derivation(out, explanation, whole=whole)
    if explanation.keeps_away:
        places = listed(explanation.keeps_away)
        if out.json:
            out.record(keeps_rows_away=explanation.keeps_away)
        else:
            out.say(f"{places} keeps rows away: input rows that are not there are a reason, too, and are not named")


def _total(inputs: Mapping[str, pl.DataFrame]) -> int:
    return sum(map(len, inputs.values()))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.items()}


def _tell_inputs(
    out: Output, explaining: Explaining, inputs: Mapping[str, pl.DataFrame], after: Time | None, until: Time, *,
    sign: bool, whole: bool,
) -> None:  # fmt: skip
    """The rows of inputs, with the time at which each came and the sources ingested then. People see some of each input
    unless they want the ``whole``.
    """
    lines, colors, left = [], [], []
    for name, frame in inputs.items():
        columns = [column for column in frame.columns if column != "diff"]
        rows = frame.sort([column for column in columns if not explaining.plan.inputs[name][column].is_nested])
        if not (out.json or whole) and len(rows) > _INPUTS:
            left.append(f"{count(len(rows) - _INPUTS)} more of {name}")
            rows = rows.head(_INPUTS)
        for row, origin in zip(rows.iter_rows(named=True), explaining.origins(name, rows, after, until), strict=True):
            diff = row.pop("diff")
            if out.json:
                fields = _origin(explaining, origin)
                out.record(input=name, row=_plain(row), **{"diff" if sign else "count": diff}, **fields)
                continue
            times = "" if abs(diff) == 1 else f"{count(abs(diff))} times" if not sign else count(abs(diff))
            mark = [("+" if diff > 0 else "-") + times] if sign else []
            where = [] if origin is None else [explaining.names.named(origin.time), _came_from(origin)]
            lines.append([*mark, name, cell(row), *([] if sign else [times]), *where, *([""] * (2 - len(where)))])
            colors.append(("green" if diff > 0 else "red") if sign else "")
    if lines and not sign and not any(line[2] for line in lines):
        lines = [[*line[:2], *line[3:]] for line in lines]
    for color, line in zip(colors, aligned(lines, width=None), strict=True):
        out.data((f"  {line}", color))
    if left:
        out.data(f"  ... and {listed(left)}; all of them with --all")


def _came_from(origin: Origin) -> str:
    """The source of a row, or the sources of which one had it."""
    sources, numbers = origin.sources, [str(record.number) for record in origin.ingests]
    if len(sources) < 2:
        return listed(sources)
    ingests = f"ingest{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
    more = f" and {count(len(sources) - _SOURCES)} more" if len(sources) > _SOURCES else ""
    return f"one of {count(len(sources))} sources of {ingests}: {', '.join(sources[:_SOURCES])}{more}"


def _origin(explaining: Explaining, origin: Origin | None) -> dict[str, Any]:
    dims = explaining.plan.dims
    name = "version" if len(dims) == 1 else "time"
    if origin is None:
        return {name: None, "label": None, "ingests": [], "sources": []}
    label = explaining.names.fields(origin.time)["label"]
    came = {"ingests": [record.number for record in origin.ingests], "sources": list(origin.sources)}
    return {name: json_time(origin.time, dims), "label": label, **came}


# --- derivations ------------------------------------------------------------------------------------------------------


def _text_derivation(out: Output, explanation: Explanation, *, whole: bool) -> None:
    """The derivation as a tree, without operators that pass rows on and without steps of one line of the program."""
    derivation = explanation.derivation
    lines: list[list[str]] = []
    told: set[Fact] = set()
    waiting: list[tuple[int, Fact]] = [(0, fact) for fact in reversed(derivation.roots)]
    more = 0
    while waiting:
        depth, fact = waiting.pop()
        fact = _settled(explanation, fact)
        again = fact in told and bool(derivation.supports[fact])
        told.add(fact)
        if not again:
            waiting += [(depth + 1, each) for each in reversed(_below(explanation, fact))]
        if len(lines) == _FACTS and not whole:
            more += 1
            continue
        node = derivation.watch.node(fact[0])
        name, place = node.operator.name, node.place
        if name == "input":
            name, place = f"input {node.operator.text}", ""
        text = "  " * depth + cell(explanation.row(fact))
        lines.append([text, name, place, "as above" if again else _rounds(fact[1])])
    for line in aligned(lines, width=None):
        out.data(f"  {line}")
    if more:
        out.data(f"  ... and {count(more)} more step{'s' if more > 1 else ''}; all of them with --all")


def _settled(explanation: Explanation, fact: Fact) -> Fact:
    """The fact, or the one it passes on."""
    derivation = explanation.derivation
    while derivation.watch.node(fact[0]).operator.name in _PASSED_ON and len(derivation.supports[fact]) == 1:
        fact = derivation.supports[fact][0]
    return fact


def _below(explanation: Explanation, above: Fact) -> list[Fact]:
    """What a fact is made of; steps of the same line of the program that have one source each are left out."""
    derivation = explanation.derivation
    place = derivation.watch.node(above[0]).place
    facts = [_settled(explanation, each) for each in derivation.supports[above]]
    result: list[Fact] = []
    for fact in facts:
        below = fact
        while len(derivation.supports[below]) == 1 and derivation.watch.node(below[0]).place == place:
            below = _settled(explanation, derivation.supports[below][0])
        if below not in result:
            result.append(below)
    return result


def _rounds(rounds: Sequence[int]) -> str:
    texts = []
    for each in rounds:
        priority, number = each >> _ROUND_BITS, each % 2**_ROUND_BITS
        texts.append(f"{number} of priority {priority - _FIRST_PRIORITY}" if priority else str(number))
    return f"{'rounds' if len(texts) > 1 else 'round'} {', '.join(texts)}" if texts else ""


def _priorities(rounds: Sequence[int]) -> dict[str, list[int | None]]:
    """The priorities of the loops around, in JSON; nothing where there are none."""
    numbers = [each >> _ROUND_BITS for each in rounds]
    return {"priorities": [number - _FIRST_PRIORITY if number else None for number in numbers]} if any(numbers) else {}


def _json_derivation(out: Output, explanation: Explanation) -> None:
    """Every step of the derivation, with the numbers of those it is made of; the row itself first."""
    derivation = explanation.derivation
    numbers = {fact: number for number, fact in enumerate(derivation.supports)}
    for fact, supports in derivation.supports.items():
        if out.unread:
            return
        node = derivation.watch.node(fact[0])
        is_input = node.operator.name == "input"
        out.record(
            step=numbers[fact],
            operator=node.operator.name,
            **({"input": node.operator.text} if is_input else {"place": node.place}),
            rounds=[each % 2**_ROUND_BITS for each in fact[1]],
            **_priorities(fact[1]),
            row=_plain(explanation.row(fact)),
            made_of=[numbers[support] for support in supports],
        )


def _tell_check(out: Output, explaining: Explaining, explanation: Explanation, row: pl.DataFrame, time: Time) -> None:
    suffices, minimal, without = explaining.check_explanation(time, row, explanation)
    if out.json:
        out.record(suffices=suffices, minimal=minimal, there_without=without)
        return
    out.data()
    out.data("checked: with these rows alone the row is " + ("there" if suffices else "NOT there"))
    out.data("checked: without any one of them it is " + ("gone" if minimal else "STILL there"))
    stays = "still there: it also rests on others" if without else "gone"
    out.data(f"checked: with all input rows but these it is {stays}")


# --- changes ----------------------------------------------------------------------------------------------------------


def _tell_causes(
    out: Output, explaining: Explaining, span: tuple[Time | None, Time], key: pl.DataFrame, *, whole: bool
) -> None:
    start, end = span
    for time, name in ((start, "A"), (end, "B")):
        if time is not None:
            explaining.require(time, name)
    dims, names = explaining.plan.dims, explaining.names
    moved = explaining.moved(start, end, key)
    ends = {"from": json_time(start, dims), "to": json_time(end, dims)}
    _tell_head(out, explaining, **ends, rows=len(moved))
    if not out.json:
        out.data(f"{'' if start is None else names.shown(start)}..{names.shown(end)}  {_spelled(key)}")
        if moved.is_empty():
            out.say(f"no row with {_spelled(key)} changed between these versions")
        else:
            out.data()
    for row in moved.iter_rows(named=True):
        diff = row.pop("diff")
        if out.json:
            out.record(row=_plain(row), diff=diff)
        else:
            mark = ("+" if diff > 0 else "-") + ("" if abs(diff) == 1 else count(abs(diff)))
            out.data((f"{mark}  {cell(row)}", "green" if diff > 0 else "red"))
    if moved.is_empty():
        return
    causes = explaining.causes(start, end, key)
    if not out.json:
        total = _total(causes.inputs)
        out.data()
        out.data(f"moved by {count(total)} of {count(causes.all_changes)} changed input rows:")
    _tell_inputs(out, explaining, causes.inputs, start, end, sign=True, whole=whole)
