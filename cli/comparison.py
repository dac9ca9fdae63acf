"""How commands show a program beside an earlier one: its outputs, its arrangements, the rows that will change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.cli.output import Output, count
from ddcore.cli.text import cell, laid_out, plain, titled

if TYPE_CHECKING:
    from ddcore.jobs.comparison import Comparison, OutputChange
    from ddcore.jobs.forecast import OutputRows

_WORDS = {
    "unchanged": "unchanged", "new": "new", "dropped": "dropped", "difference": "computed in another way",
    "columns": "other columns",
}  # fmt: skip
_WIDTH = 100  # columns, where no terminal says otherwise


def tell_comparison(out: Output, comparison: Comparison, write: Callable[..., None], *, counted: bool = False) -> None:
    """The outputs, and the arrangements that are built or dropped; ``counted``: how many are kept, too."""
    width = out.width or _WIDTH
    outputs = [[one.output, _WORDS[one.change], _columns(one)] for one in comparison.outputs]
    built = [[one.label, one.of, one.key, one.change, one.why] for one in comparison.of_change("built")]
    for line in titled(["output", "change", "columns"], outputs, width):
        write(line)
    for line in titled(["arrangement", "of", "key", "change", "why"], built, width):
        write(line)
    kept, dropped = (len(comparison.of_change(change)) for change in ("kept", "dropped"))
    counts = [f"{count(kept)} {_are(kept)} kept"] if counted else []
    counts += [f"{count(dropped)} that the program does not need {_are(dropped)} dropped"] if dropped else []
    if counts:
        write("")
        write(f"of the stored arrangements, {', and '.join(counts)}")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _columns(change: OutputChange) -> str:
    """What becomes of the columns of an output: ``+n int64, -total int64, price int64 -> float64``."""
    if change.change != "columns":
        return ""
    parts = [f"+{name} {kind}" for name, kind in change.added.items()]
    parts += [f"-{name} {kind}" for name, kind in change.removed.items()]
    parts += [f"{name} {old} -> {new}" for name, (old, new) in change.retyped.items()]
    return ", ".join(parts) or "another order"


def tell_rows(
    out: Output, found: Iterable[OutputRows], write: Callable[..., None], *, limit: int
) -> dict[str, dict[str, Any]]:
    """The rows that outputs gain and lose, at most ``limit`` of each, 0 for all; and the counts, for JSON."""
    counts: dict[str, dict[str, Any]] = {}
    for one in found:
        columns = None if one.columns is None else list(one.columns)
        counts[one.output] = {"plus": one.plus, "minus": one.minus, "columns": columns}
        shown = list(_first(one, limit))
        if out.json:
            counts[one.output]["rows"] = [{"row": _named(one, row), "diff": row[-1]} for row in shown]
            continue
        compared = "" if columns is None else f"  by the columns {', '.join(columns) or 'that none are'}"
        write(f"{one.output}  ", (f"+{count(one.plus)}", "green"), " ", (f"-{count(one.minus)}", "red"), compared)
        for color, line in _lines(one, shown, out.width):
            write((f"  {line}", color))
        if len(one.rows) > len(shown):
            write(f"  {count(len(one.rows) - len(shown))} more")
    return counts


def _first(one: OutputRows, limit: int) -> Iterator[tuple[Any, ...]]:
    return (one.rows.head(limit) if limit else one.rows).iter_rows()


def _named(one: OutputRows, row: tuple[Any, ...]) -> Mapping[str, Any]:
    return {name: plain(value) for name, value in zip(one.rows.columns[:-1], row[:-1], strict=True)}


def _lines(one: OutputRows, rows: Sequence[tuple[Any, ...]], width: int | None) -> Iterator[tuple[str, str]]:
    if not rows:
        return
    cells = [[_sign(row[-1]), *map(cell, row[:-1])] for row in rows]
    numbers = [1 + number for number, dtype in enumerate(one.rows.dtypes[:-1]) if dtype.is_numeric()]
    for index, line in laid_out(["", *one.rows.columns[:-1]], cells, numbers, width, vertical=False):
        yield ("dim" if index is None else "green" if rows[index][-1] > 0 else "red"), line


def _sign(diff: int) -> str:
    many = abs(diff)
    return ("+" if diff > 0 else "-") + (f"{many}x" if many > 1 else "")
