"""The two streams: stdout carries data, stderr carries everything else.

A command writes through one :class:`Output`. While user code or Spark runs, :meth:`Output.claimed` keeps stdout for the
command: whatever else is printed goes to stderr. :func:`open_streams` makes both streams safe to write to, also where
the caller closed one or its reader has gone.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from ddcore.base.errors import StorageError
from ddcore.cli.text import count, cut, json_text, message, printable
from ddcore.jobs.report import SCHEMA_VERSION, json_line
from ddcore.text.redaction import masked
from ddcore.text.wording import advice, shown

__all__ = ["SCHEMA_VERSION", "Output", "Progress", "count", "open_streams", "write_file"]

_COLORS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
_BAR_EVERY = 0.2  # seconds between two drawings of the bar

Part = str | tuple[str, str]  # a text, or a text and its colour


class Output:
    """Where one command writes. ``quiet`` drops everything but data and errors."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json, self.quiet = json, quiet
        self.stdout, self.stderr = sys.stdout, sys.stderr

    @property
    def on_terminal(self) -> bool:
        """Whether a person reads stdout as it is written."""
        return _is_terminal(self.stdout)

    @property
    def width(self) -> int | None:
        """The columns of the terminal that shows stdout; None when it is a file or a pipe."""
        return shutil.get_terminal_size().columns if self.on_terminal else None

    @property
    def bar_shown(self) -> bool:
        """Whether a person sees the live bar."""
        return not self.quiet and _is_terminal(self.stderr)

    @property
    def unread(self) -> bool:
        """Whether the reader of stdout has gone away (``| head``), so that writing on is useless."""
        return bool(getattr(self.stdout, "unread", False))

    def data(self, *parts: Part) -> None:
        """One line of data for people, made printable."""
        self.stdout.write(self._line(self.stdout, parts) + "\n")

    def record(self, **fields: Any) -> None:
        """One JSON line of data."""
        self.stdout.write(json_text(fields, ascii_only=not _is_unicode(self.stdout)) + "\n")

    def result(self, command: str, **fields: Any) -> None:
        """The JSON object that ends ``run`` and ``ingest``: for programs, so a person at a terminal is spared it."""
        if self.json or not (self.quiet or self.on_terminal):
            self.data(masked(json_line(command, fields)))

    def say(self, *parts: Part) -> None:
        """One line for people, on stderr; a very long one is cut in the middle."""
        if not self.quiet:
            self._tell(parts)

    def rest(self, many: str) -> None:
        """How many more there are than are shown."""
        self.say(f"... and {many}; all of them with --limit 0")

    def warn(self, line: str) -> None:
        """One line for people that -q does not drop."""
        self._tell((("warning: ", "yellow"), line))

    def painted(self, text: str, color: str, stream: TextIO | None = None) -> str:
        """``text`` in a colour, where the stream shows colours."""
        return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if color and _has_color(stream or self.stdout) else text

    def progress(self) -> Progress:
        """A live bar on a terminal, nothing elsewhere."""
        return Progress(self.stderr, live=self.bar_shown)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep stdout for this command's data: prints of the program, of Spark and of its JVM go to stderr."""
        self.stdout.flush()
        before: TextIO = sys.stdout
        copy = os.dup(1) if before is sys.__stdout__ and _file_number(before) == 1 else None
        if copy is not None:
            self.stdout = _text_stream(copy, before)
            os.dup2(2, 1)  # what is not Python's prints by number
        sys.stdout = self.stderr
        try:
            yield
        finally:
            sys.stdout = before
            if copy is not None:
                before.flush()
                os.dup2(copy, 1)
                try:
                    self.stdout.flush()
                finally:
                    os.close(copy)
                    self.stdout = before

    def _line(self, stream: TextIO, parts: tuple[Part, ...]) -> str:
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        return "".join(self.painted(printable(text), color, stream) for text, color in pairs)

    def _tell(self, parts: tuple[Part, ...]) -> None:
        parts = tuple(message(masked(part)) if isinstance(part, str) else part for part in parts)
        _write(self.stderr, self._line(self.stderr, parts))


class Progress:
    """The live bar: ``stage [#####.....] 12/40 note 3s``. It keeps its own time, and is wiped at the end.

    The seconds show that a stage without news (Spark starting, kernels being compiled) is not hung.
    """

    def __init__(self, stream: TextIO, *, live: bool) -> None:
        self.stream, self.live = stream, live
        self._state: tuple[str, int, int | None, str] | None = None
        self._start = 0.0
        self._between: tuple[str, int, int | None, str] | None = None
        self._began = 0.0
        self._watched: Callable[[], bool] | None = None
        self._over = threading.Event()
        self._clock: threading.Thread | None = None

    def __call__(self, stage: str, done: int = 0, total: int | None = None, note: str = "") -> None:
        """Show how far ``stage`` is: ``done`` of ``total`` (None: nobody knows)."""
        if self._state is None or self._state[0] != stage:
            self._start = time.monotonic()
        self._state = (stage, done, total, note)
        self._show()

    def between(self, stage: str, done: int = 0, total: int | None = None, note: str = "") -> None:
        """Show something else that goes on in the midst of a stage, until this is called with no name."""
        if not stage:
            self._between = None
            self.wipe()
            return
        self._began = self._began or time.monotonic()
        self._between = (stage, done, total, note)
        self._show()

    def watch(self, going_on: Callable[[], bool]) -> None:
        """Call this at each drawing, while it says that something goes on: it may show that with :meth:`between`."""
        self._watched = going_on

    def _show(self) -> None:
        if self.live and self._clock is None:
            self._draw()
            self._clock = threading.Thread(target=self._run, name="progress", daemon=True)
            self._clock.start()

    def _run(self) -> None:
        while not self._over.wait(_BAR_EVERY):
            if self._watched is not None and not self._watched():
                self._watched = None
            self._draw()

    def _draw(self) -> None:
        state, start = (self._state, self._start) if self._between is None else (self._between, self._began)
        if state is None:
            return
        stage, done, total, note = state
        parts = [stage]
        if total:
            filled = min(20, 20 * done // total)
            parts.append(f"[{'#' * filled}{'.' * (20 - filled)}] {count(done)}/{count(total)}")
        elif done:
            parts.append(count(done))
        parts += [note] * bool(note) + [f"{time.monotonic() - start:.0f}s"]
        line = cut(printable(masked("  ".join(parts))), shutil.get_terminal_size().columns - 1)
        _write(self.stream, f"\r\x1b[K{line}", end="")

    def wipe(self) -> None:
        """Make room for a line; the bar comes back."""
        if self._clock is not None:
            _write(self.stream, "\r\x1b[K", end="")

    def close(self) -> None:
        """Wipe the bar."""
        self._over.set()
        if self._clock is not None:
            self._clock.join()
            self._clock = None
            _write(self.stream, "\r\x1b[K", end="")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- streams ----------------------------------------------------------------------------------------------------------


class _Stream(io.TextIOWrapper):
    """Text to a descriptor. After a write has failed, all later ones go to the null device.

    ``unread`` tells that the reader of a pipe has gone, which is no error. Another failure (a full disk) is raised
    once, or never where ``lenient`` is set. Not done below the buffer: a signal's exception between the system call and
    the buffer would have it write the same bytes again.
    """

    def __init__(self, number: int, encoding: str, *, lenient: bool) -> None:
        raw = io.FileIO(number, "w", closefd=False)
        by_line = lenient or raw.isatty()
        super().__init__(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=by_line)
        self.unread, self._lenient = False, lenient

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.unread = isinstance(error, BrokenPipeError)
        _to_null(self.fileno())
        super().flush()
        if not (self.unread or self._lenient):
            error.filename = "stdout"
            raise error


def open_streams() -> None:
    """Replace this process's standard streams by ones that can always be written to.

    A descriptor that the caller closed becomes the null device: else the next file that is opened would take its
    number, and what is printed would land in that file. What an encoding lacks is written with a backslash.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _to_null(number)
    if sys.stdin is None:
        _replace("stdin", open(0, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process
    for name, number in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        if before is not None:
            before.flush()
        _replace(name, _text_stream(number, before))


def _replace(name: str, stream: TextIO) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _text_stream(number: int, like: TextIO | None) -> _Stream:
    """Text to a descriptor, in the encoding of another stream."""
    return _Stream(number, getattr(like, "encoding", None) or "utf-8", lenient=number == 2)


def _to_null(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(number, True)
        return
    os.dup2(null, number)
    os.close(null)


def write_file(file: Path, text: str) -> None:
    """Write a file that a user named. StorageError."""
    try:
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        hint = advice(error) or "name a file in a folder that exists"
        raise StorageError(f"{shown(file)}: {error.strerror}", hint) from None


def _write(stream: TextIO, text: str, end: str = "\n") -> None:
    # Nobody reading stderr is no reason to stop working.
    with suppress(OSError, ValueError):
        stream.write(text + end)
        stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _is_unicode(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def _has_color(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return _is_terminal(stream) and os.environ.get("TERM") != "dumb"


def _file_number(stream: TextIO) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return -1
