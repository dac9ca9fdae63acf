"""``dd sync --follow``: syncs again and again, until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.cli.ingest import tell_ingest
from ddcore.cli.options import Call
from ddcore.cli.run import tell_run
from ddcore.text.wording import counted, listed

if TYPE_CHECKING:
    from ddcore.base.errors import DdError
    from ddcore.io.ledger.freshness import Freshness
    from ddcore.io.project.project import Project
    from ddcore.jobs.follower import Told
    from ddcore.jobs.sync import SyncReport


def follow_sources(
    call: Call, project: Project, options: Mapping[str, Any], *, every: float, metrics: str | None, health: Path | None
) -> int:
    """Follow the declared sources of a project until SIGTERM or SIGINT; the exit code."""
    from ddcore.cli.hook import failure, tell_hook
    from ddcore.cli.notices import notices
    from ddcore.io.ledger.freshness import late_source
    from ddcore.jobs.engines import kept
    from ddcore.jobs.follower import Follower
    from ddcore.jobs.metrics import Metrics, write_health

    out = call.output

    def tell(report: SyncReport) -> None:
        for one in report.ingests:
            if not one.nothing_new:
                tell_ingest(out, one, project.dims, of_several=True)
        tell_run(out, report.run)
        fields = report.fields(project.dims)
        out.result("sync", **fields)
        out.stdout.flush()
        tell_hook(out, project, "sync", fields)

    def fail(error: DdError) -> None:
        out.say(("error: ", "red"), error.message)
        if error.hint:
            out.say(f"  {error.hint}")
        tell_hook(out, project, "sync", failure(error))

    def late(source: Freshness) -> None:
        if (error := late_source([source])) is None:
            out.warn(f"input {source.input}: {source.sentence}")
        else:
            fail(error)

    def looked(told: Told) -> None:
        if health is not None:
            write_health(health, told)

    follower = Follower(
        project, options, every=every, engine=project.engine, parallelism=project.parallelism,
        tell=tell, fail=fail, looked=looked, late=late,
    )  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(notices(out))
        stack.enter_context(kept(project.engine))
        if metrics is not None:
            stack.enter_context(Metrics(metrics, follower.done))
        stack.enter_context(_stopping(follower.stop.set))
        what = [] if project.upstream is None else [f"the inputs of {project.upstream.root}"]
        what += [counted(len(project.sources), "source")] if project.sources or not what else []
        out.say(f"following {listed(what)}, every {every:g} s; SIGTERM or Ctrl-C ends it")
        is_other = follower.follow()
    if is_other:
        out.say("dd.toml or the program has changed: the follower starts again")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 0


@contextmanager
def _stopping(stop: Any) -> Iterator[None]:
    """SIGTERM and SIGINT only ask for the end; a second one ends the command at once, as it does without this."""
    before: dict[int, Any] = {}

    def ask(number: int, _: object) -> None:
        stop()
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, ask)
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
