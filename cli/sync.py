"""``dd sync``: takes in what declared sources have that is new, and folds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcore.cli.ingest import tell_ingest
from ddcore.cli.options import LABEL, LATE, MEMORY, SKIP_CODE, VERIFY_EVERY, Call, command
from ddcore.cli.run import tell_run, verified
from ddcore.jobs.report import result, spelled

if TYPE_CHECKING:
    from ddcore.base.errors import DdError
    from ddcore.jobs.ingest import IngestReport
    from ddcore.jobs.sync import SyncReport

__all__ = ["sync"]


@command("engine master parallelism json quiet project")
def sync(
    call: Call,
    *,
    late: str | None = LATE,
    label: list[str] | None = LABEL,
    verify_every: int | None = VERIFY_EVERY,
    memory: str | None = MEMORY,
    skip_code: int | None = SKIP_CODE,
) -> int:
    """Take in what the declared sources have that is new, then fold it: ingest and run in one process.

    The sources are those of dd.toml: [inputs.NAME] source = { ... }, in that order. One that fails ends the command,
    and nothing is folded. If it is killed, the next one finishes the same work. Where the newest rows of a source are
    older than it expects, all is done first, and then the exit code is 5. The last line of stdout is a JSON object with
    the result (on a terminal: with --json).
    """
    out = call.output
    opened = call.opened(memory=memory, verify_every=verify_every)
    from ddcore.cli.notices import listener, notices
    from ddcore.io.ledger.freshness import late_source
    from ddcore.jobs import sync as job

    with out.claimed(), out.progress() as progress, notices(out, progress):

        def tell(report: IngestReport) -> None:
            progress.wipe()
            tell_ingest(out, report, opened.dims, of_several=True)

        report = job.sync(
            opened,
            {"late": late, "label": label},
            engine=opened.engine,
            parallelism=opened.parallelism,
            listener=listener(out, progress, opened.engine),
            tell=tell,
        )
    tell_run(out, report.run)
    for one in report.fresh:
        if one.is_late and one.source.severity == "warn":
            out.warn(f"input {one.input}: {one.sentence}")
    error: DdError | None = late_source(report.fresh)
    try:
        error = (verified(out, opened, report.run) if opened.verify_every else None) or error
    finally:
        out.result("sync", **_result(report, opened.dims))
    if error is not None:
        raise error
    return skip_code if report.nothing_new and skip_code is not None else 0


def _result(report: SyncReport, dims: tuple[str, ...]) -> dict[str, Any]:
    return {
        "ingests": [spelled({**vars(one), "took": round(one.took, 3)}, dims) for one in report.ingests],
        "run": result(report.run),
        "sources": [one.record for one in report.fresh],
        "nothing_new": report.nothing_new,
        "took": round(report.took, 3),
    }
