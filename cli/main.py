"""The entry point of ``dd`` and ``ddcore``: it takes arguments and returns an exit code.

Nothing heavy is imported here or at the top of a command's file, so that ``--help`` is quick; a test checks it.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from ddcore.base.errors import DdError, UsageError
from ddcore.base.version import __version__
from ddcore.cli.memory_limits import check_limit, limit_text, ran_out
from ddcore.cli.options import Command, Group, VersionCommand
from ddcore.cli.output import Output, open_streams
from ddcore.text.redaction import masked
from ddcore.text.wording import advice, one_line

# Operands of the dd that copies files: if=FILE, of=FILE, bs=4M, ...
_COREUTILS = re.compile(r"(if|of|bs|ibs|obs|cbs|count|skip|seek|iseek|oseek|conv|iflag|oflag|status)=")
_AGAIN_AFTER = 0.05  # seconds until a signal that could not be raised is sent again
_OBJECTS_BETWEEN_COLLECTIONS = 200_000  # more than imports create
_SIGNALED = {130: "interrupted", 143: "terminated"}

COMMANDS = {  # in the order of the help: the line there, and the class
    "init": ("Make a project folder that runs at once.", Command),
    "ingest": ("Append a source's versions to an input.", Command),
    "run": ("Fold every version that is not folded yet.", Command),
    "sync": ("Take in what declared sources have that is new, and fold it.", Command),
    "diff": ("Show what changed between two versions.", VersionCommand),
    "show": ("Show an output as of a version.", Command),
    "explain": ("Show why a row is there, or what moved it.", VersionCommand),
    "log": ("List runs and ingests.", Command),
    "report": ("Write a page about a run.", Command),
    "status": ("Show what is folded, what is waiting, how big it is.", Command),
    "plan": ("Show the program's dataflow.", Command),
    "verify": ("Verify outputs against the program, computed anew.", VersionCommand),
    "branch": ("Make, list or delete a copy of the warehouse to try things in.", Command),
    "readers": ("List the projects that read these inputs.", Command),
    "compact": ("Merge files and delete what is no longer needed.", Command),
    "doctor": ("Check this machine and this project.", Command),
}
"""Each is the function of this name in its module; a command line loads only the one that it names."""


class _Signals:
    """SIGINT and SIGTERM unwind the stack, so that locks are released and Spark's job is cancelled.

    ``code`` is the exit code of the first signal, else 0. A second SIGTERM ends the process at once. Python cannot
    raise an exception through a callback from compiled code: it is dropped there, the signal is sent again a moment
    later, and nothing is printed. Otherwise the signal would be lost and the command would run to its end.
    """

    def __init__(self) -> None:
        self.code = 0
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._again: threading.Timer | None = None

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and background jobs have it
                    self._before[number] = signal.signal(number, self._stop)
        sys.unraisablehook = self._drop
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook
        if self._again is not None:
            self._again.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _: object) -> None:
        self.code = self.code or 128 + number
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    def _drop(self, unraisable: Any) -> None:
        if not self.code:
            self._hook(unraisable)
        elif isinstance(unraisable.exc_value, KeyboardInterrupt) and signal.SIGTERM in self._before:
            # Only in the main thread is a signal's exception raised, so here a handler may be set.
            signal.signal(signal.SIGTERM, self._stop)
            main = threading.main_thread().ident
            self._again = threading.Timer(_AGAIN_AFTER, signal.pthread_kill, (main, signal.SIGTERM))
            self._again.daemon = True
            self._again.start()


def main() -> NoReturn:
    """Run the command line of this process and exit with its code.

    Objects that libraries create at import stay for good, so garbage is collected seldom, and not at the end.
    """
    open_streams()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads for matrices: none has work, all are started
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    code = run_command(sys.argv[1:], _program_name())
    gc.freeze()
    sys.exit(code)


def run_command(arguments: Sequence[str], name: str = "ddcore") -> int:
    """Run one command line and return its exit code; errors are printed on stderr, none is raised."""
    with _debugging("--debug" in arguments) as debug, _Signals() as signals:
        try:
            code = _invoke(list(arguments), name)
            sys.stdout.flush()
        except BaseException as error:
            # Compiled code and Spark may turn a signal's exception into an error of another kind.
            code = _stopped(signals.code) if signals.code else _ended(error, name, debug)
    return code


@contextmanager
def _debugging(asked: bool) -> Iterator[bool]:
    """Whether tracebacks are shown. ``--debug`` is for one command: who calls several has their environment back."""
    before = os.environ.get("DDCORE_DEBUG")
    if asked:
        os.environ["DDCORE_DEBUG"] = "1"  # the code that starts Spark reads it
    try:
        yield os.environ.get("DDCORE_DEBUG", "0") not in ("", "0")
    finally:
        if asked and before is None:
            os.environ.pop("DDCORE_DEBUG", None)
        elif asked and before is not None:
            os.environ["DDCORE_DEBUG"] = before


def _ended(error: BaseException, name: str, debug: bool) -> int:
    """Print what ended the command, and return the exit code."""
    if isinstance(error, DdError):
        code = _failed(error.message, error.hint, error.exit_code)
    elif isinstance(error, typer.TyperException):
        return _misused(error, name)
    elif isinstance(error, KeyboardInterrupt):
        return _stopped(130)
    elif isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    elif ran_out(error):
        hint = "free some memory, or raise the limit; for folds in little memory there is: ddcore run --memory SIZE"
        code = _failed(f"memory ran out: {one_line(error)}{limit_text()}", hint, 1)
    elif isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        hint = advice(error) or ("" if debug else "see more with --debug")
        code = _failed(f"{file}{error.strerror or one_line(error)}", hint, 1)
    elif isinstance(error, RecursionError):
        hint = "" if debug else "look for what nests very deeply in the program or the data; see more with --debug"
        code = _failed(f"too deeply nested: {one_line(error)}", hint, 1)
    else:
        kind, text = type(error).__name__, one_line(error)
        hint = "" if debug else "this should not happen: see --debug"
        code = _failed(kind if text == kind else f"{kind}: {text}", hint, 1)
    if debug:
        sys.stderr.write(masked("".join(traceback.format_exception(error))))
    return code


def _invoke(arguments: list[str], name: str) -> int:
    completing = f"_{name.upper()}_COMPLETE" in os.environ
    if not arguments and not completing:
        # The other `dd` would wait for stdin here.
        with redirect_stdout(sys.stderr):
            app_of(COMMANDS)(["--help"], prog_name=name, standalone_mode=False)
        return 2
    if arguments and _COREUTILS.match(arguments[0]):
        raise UsageError(
            f"{arguments[0]!r} is for the dd that copies files; this dd is ddcore",
            f"that one is at /bin/dd: /bin/dd {' '.join(arguments)}",
        )
    check_limit(arguments)
    code = _app(arguments)(arguments, prog_name=name, standalone_mode=False)
    if code == 130:  # typer makes an exit code of KeyboardInterrupt
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _app(arguments: list[str]) -> typer.Typer:
    """The command that the first argument names; all of them where it names none, as for the help."""
    return app_of(arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS)


def app_of(names: Iterable[str]) -> typer.Typer:
    """The command line with some commands."""
    app = typer.Typer(
        cls=Group,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        help="Fold versioned inputs through a program, and keep what every version changed.",
        epilog="A project: ddcore init DIR. Then ingest, run, diff. Where no virtual environment is active, `dd` is "
        "another program: scripts say ddcore.",
    )
    app.callback()(_root)
    for name in names:
        line, kind = COMMANDS[name]
        app.command(short_help=line, cls=kind)(getattr(import_module(f"ddcore.cli.{name}"), name))
    return app


def _version(value: bool) -> None:
    if value:
        typer.echo(f"ddcore {__version__} (Python {sys.version.split()[0]})")
        raise typer.Exit(0)


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle the options that stand before a command."""


def _program_name() -> str:
    called = os.path.basename(sys.argv[0]).removesuffix(".exe")
    return called if called in ("dd", "ddcore") else "ddcore"


# --- how it ends ------------------------------------------------------------------------------------------------------


def _failed(message: str, hint: str, code: int) -> int:
    out = Output()
    out.say(("error: ", "red"), message)
    if hint:
        out.say(f"  {hint}")
    return code


_PLAIN = str.maketrans("", "", "{}")  # around a required argument


def _misused(error: typer.TyperException, name: str) -> int:
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
    hint = f"see: {path} --help"
    if context is not None and message.startswith("Missing argument"):
        arguments = [part for part in context.command.collect_usage_pieces(context) if part != "[OPTIONS]"]
        hint = f"usage: {path} {' '.join(arguments).translate(_PLAIN)}; {hint}"
    return _failed(message[:1].lower() + message[1:], hint, error.exit_code)


def _stopped(code: int) -> int:
    return _failed(
        _SIGNALED[code], "the warehouse is as the last finished run or ingest left it; the same command goes on", code
    )


if __name__ == "__main__":
    main()
