"""The hook: a command of the project that gets the JSON object of each run, also of one that failed.

What the hook does and how it ends never changes what the run does: a hook that fails, or takes too long, is a warning.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError
from ddcore.jobs.report import json_line
from ddcore.text.redaction import masked
from ddcore.text.wording import one_line

if TYPE_CHECKING:
    from ddcore.cli.output import Output
    from ddcore.io.project.project import Project

_STDERR = 2  # the number of the open file


@contextmanager
def hooked(out: Output, project: Project, command: str) -> Iterator[None]:
    """Tell the project's hook the error of a command, if one ends what is inside."""
    try:
        yield
    except DdError as error:
        tell_hook(out, project, command, failure(error))
        raise


def failure(error: DdError | None) -> dict[str, Any]:
    """The field that tells an error; no field without one."""
    if error is None:
        return {}
    return {"error": {"message": error.message, "hint": error.hint or None, "exit_code": error.exit_code}}


def tell_hook(out: Output, project: Project, command: str, fields: dict[str, Any]) -> None:
    """Call the hook of the project, if it has one, with the JSON object of a command on its stdin; wait for its end.

    It runs in the project's folder; what it prints goes to stderr. Warns where it cannot be called or fails.
    """
    if not project.hook:
        return
    name = project.hook[0]
    try:
        code = _called(project, masked(json_line(command, fields)) + "\n", {"DDCORE_COMMAND": command})
    except subprocess.TimeoutExpired:
        out.warn(f"the hook {name} was ended: it took more than {project.tuning.hook_seconds:g} s")
    except OSError as error:
        out.warn(f"the hook {name} cannot be called: {error.strerror or one_line(error)}")
    else:
        if code:
            out.warn(f"the hook {name} ended with exit code {code}")


def _called(project: Project, text: str, variables: Mapping[str, str]) -> int:
    """Call the hook; its exit code. Whatever ends the wait ends the hook with all that it has started."""
    process = subprocess.Popen(
        project.hook, cwd=project.root, stdin=subprocess.PIPE, stdout=_STDERR, text=True, encoding="utf-8",
        env={**os.environ, **variables}, start_new_session=True,
    )  # fmt: skip
    try:
        process.communicate(text, timeout=project.tuning.hook_seconds)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode
