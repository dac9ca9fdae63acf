"""``dd explain``: the input rows on which a row of an output rests, or the changes of inputs that moved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.cli.completion import version_names
from ddcore.cli.derivations import MOST_STEPS
from ddcore.cli.explanations import MOST_INPUTS, tell_causes, tell_rows
from ddcore.cli.options import (
    OR_BEFORE,
    OUTPUT,
    Call,
    argument,
    command,
    flag,
    option,
    whole_number,
)
from ddcore.cli.row_key import divided, key_of
from ddcore.io.project.times import Time

if TYPE_CHECKING:
    from ddcore.io.ledger.readable import Readable

_ROWS = 3  # that are explained unless --limit says otherwise


@command("json project")
def explain(
    call: Call,
    output: str = OUTPUT,
    words: list[str] | None = argument(
        "[A B] COLUMN=VALUE...",
        "The row: values of some of its columns; null stands for no value, '\"null\"' for the text. With two versions "
        "before it, or A..B: which changes of inputs after A, up to B, moved the rows with these values.",
        complete=version_names,
    ),
    *,
    at: str | None = option(
        "V",
        "As of this version, inclusive: a number, latest, an offset: -1, a label, or a date: 2026-11-19, yesterday. "
        "With several time dimensions: day=7,revision=1. Default: latest.",
        complete=version_names,
    ),
    or_before: bool = OR_BEFORE,
    check: bool = flag("Fold again, from nothing: the named rows alone, without each of them, and all other rows."),
    limit: int | None = option("N", f"Explain at most N rows; 0 for all. Default: {_ROWS}.", whole_number(0)),
    whole: bool = flag(
        f"Show all input rows and all steps. Default: {MOST_INPUTS} rows of each input and {MOST_STEPS} steps; with "
        "--json all.",
        "--all",
    ),
) -> int:
    """Show the input rows on which rows of OUTPUT rest, and how the program makes them of these.

    The program gives the row for these input rows alone, and without any one of them it does not. Each line of the
    derivation is a row, with the operator that makes it, its place in the program and the rounds of the loops around.
    With two versions: the changes of inputs that moved the rows.
    """
    out = call.output
    settings = call.opened()
    from ddcore.cli.notices import notices
    from ddcore.io.ledger.readable import Readable
    from ddcore.io.project.frontiers import nothing_closed
    from ddcore.jobs.explain import Explaining

    with notices(out):
        explaining = Explaining(settings, output)
        dims, claims = settings.dims, explaining.verification.claims
        readable = Readable(dims, claims.since or nothing_closed(dims), claims.upper, explaining.names)
        versions, pairs = divided(words or (), explaining.schema, output)
        key = key_of(pairs, explaining.schema, output)
        if versions:
            if at is not None or check or limit is not None:
                other = "--at" if at is not None else "--check" if check else "--limit"
                raise UsageError(f"explain takes two versions or {other}, not both", "leave one of them out")
            tell_causes(out, explaining, _span(versions, readable, or_before=or_before), key, whole=whole)
        else:
            time = readable.time(at or "latest", "--at", or_before=or_before)
            tell_rows(
                out, explaining, time, key, "--at" if at else "explain",
                limit=_ROWS if limit is None else limit, check=check, whole=whole,
            )  # fmt: skip
    return 0


def _span(versions: Sequence[str], readable: Readable, *, or_before: bool) -> tuple[Time | None, Time]:
    if len(versions) > 2:
        raise UsageError(f"explain takes two versions, not {len(versions)}: {' '.join(versions)}", "say A B or A..B")
    if len(versions) == 1 and ".." not in versions[0]:
        raise UsageError(
            f"explain takes two versions, or none, got {versions[0]!r}", f"the row at one version: --at {versions[0]}"
        )
    return readable.range(versions[0], versions[1] if len(versions) > 1 else None, or_before=or_before)
