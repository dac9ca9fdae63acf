"""``dd sync``: takes in what declared sources have that is new, and folds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.cli.ingest import tell_ingest
from ddcore.cli.options import LABEL, LATE, MEMORY, SKIP_CODE, VERIFY_EVERY, Call, command, flag, option, positive
from ddcore.cli.run import tell_run, verified

if TYPE_CHECKING:
    from ddcore.base.errors import DdError
    from ddcore.jobs.ingest import IngestReport


@command("engine master parallelism json quiet project")
def sync(
    call: Call,
    *,
    late: str | None = LATE,
    label: list[str] | None = LABEL,
    verify_every: int | None = VERIFY_EVERY,
    memory: str | None = MEMORY,
    skip_code: int | None = SKIP_CODE,
    follow: bool = flag(
        "Stay, and do it again whenever a source has something new; SIGTERM ends it between two syncs."
    ),
    every: float | None = option(
        "SECONDS", "With --follow: how often to look at the sources. Default: 1.", parser=positive("seconds")
    ),
    metrics: str | None = option(
        "HOST:PORT", "With --follow: answer GET /metrics (Prometheus) and /health there, such as 127.0.0.1:9464."
    ),
    health: Path | None = option("FILE", "With --follow: write this file after each look at the sources."),
) -> int:
    """Take in what the declared sources have that is new, then fold it: ingest and run in one process.

    The sources are those of dd.toml: [inputs.NAME] source = { ... }, in that order. One that fails ends the command,
    and nothing is folded. If it is killed, the next one finishes the same work. Where the newest rows of a source are
    older than it expects, all is done first, and then the exit code is 5. The last line of stdout is a JSON object with
    the result (on a terminal: with --json).
    """
    out = call.output
    opened = call.opened(memory=memory, verify_every=verify_every)
    options = {"late": late, "label": label}
    if follow:
        if label or verify_every:
            word = "--label" if label else "--verify-every"
            raise UsageError(f"--follow and {word}: only one of them", "each version that is folded would get it")
        from ddcore.cli.following import follow_sources

        return follow_sources(call, opened, options, every=every or 1.0, metrics=metrics, health=health)
    for name, value in (("every", every), ("metrics", metrics), ("health", health)):
        if value is not None:
            raise UsageError(f"--{name}: only with --follow", "say: ddcore sync --follow")
    from ddcore.cli.hook import failure, hooked, tell_hook
    from ddcore.cli.notices import listener, notices
    from ddcore.io.ledger.freshness import late_source
    from ddcore.jobs import sync as job

    with hooked(out, opened, "sync"), out.claimed(), out.progress() as progress, notices(out, progress):

        def tell(report: IngestReport) -> None:
            progress.wipe()
            tell_ingest(out, report, opened.dims, of_several=True)

        report = job.sync(
            opened,
            options,
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
    fields = report.fields(opened.dims)
    try:
        with hooked(out, opened, "sync"):
            error = (verified(out, opened, report.run) if opened.verify_every else None) or error
    finally:
        out.result("sync", **fields)
    if error is not None or not report.nothing_new:
        tell_hook(out, opened, "sync", {**fields, **failure(error)})
    if error is not None:
        raise error
    return skip_code if report.nothing_new and skip_code is not None else 0
