"""The two streams: stdout carries data, stderr carries everything else.

A command makes one :class:`Output` and writes through it alone. While user code or Spark runs,
:meth:`Output.claimed` keeps stdout for the command: whatever else is printed goes to stderr.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TextIO

from ddcore.jobs.report import SCHEMA_VERSION, json_line

__all__ = ["SCHEMA_VERSION", "Output", "Progress", "aligned", "cell", "count", "plain"]

_COLORS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
_BAR_EVERY = 0.2  # seconds between two drawings of the bar


class Output:
    """Where one command writes. ``quiet`` drops all but data that was asked for and errors."""

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

    def data(self, line: str) -> None:
        """One line of data. When nobody reads any more (``| head``) the command ends, content."""
        try:
            self.stdout.write(line + "\n")
        except BrokenPipeError:
            _reader_gone(self.stdout)

    def record(self, **fields: Any) -> None:
        """One JSON line of data."""
        self.data(json.dumps(fields, ensure_ascii=False, allow_nan=False))

    def result(self, command: str, **fields: Any) -> None:
        """The JSON object that ends ``run`` and ``ingest``: for programs, so a person at a terminal is spared it."""
        if self.json or not (self.quiet or self.on_terminal):
            self.data(json_line(command, fields))

    def say(self, line: str = "") -> None:
        """One line for people, on stderr."""
        if not self.quiet:
            _write(self.stderr, line)

    def warn(self, line: str) -> None:
        """One line for people that -q does not drop."""
        _write(self.stderr, self.painted("warning: ", "yellow", self.stderr) + line)

    def painted(self, text: str, color: str, stream: TextIO | None = None) -> str:
        """``text`` in a colour, where the stream shows colours."""
        return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if _has_color(stream or self.stdout) else text

    def progress(self) -> Progress:
        """A live bar on a terminal, nothing elsewhere."""
        return Progress(self.stderr, live=self.bar_shown)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep stdout for this command's data: prints of the program, of Spark and of its JVM go to stderr."""
        self.stdout.flush()
        real = sys.stdout is sys.__stdout__ and _file_number(self.stdout) == 1
        kept = os.dup(1) if real else None
        if kept is not None:
            self.stdout = os.fdopen(kept, "w", encoding=sys.stdout.encoding)
            os.dup2(2, 1)
        else:
            sys.stdout = self.stderr
        try:
            yield
        finally:
            with suppress(BrokenPipeError):
                self.stdout.flush()
            if kept is not None:
                sys.stdout.flush()
                os.dup2(kept, 1)
                self.stdout.close()
            self.stdout = sys.stdout = sys.__stdout__ if real and sys.__stdout__ else self.stdout


class Progress:
    """The live bar: ``stage [#####.....] 12/40 note 3s``. It keeps its own time, and is wiped at the end.

    A stage that says nothing for long (Spark starting, kernels being compiled) is seen to be alive by its seconds.
    """

    def __init__(self, stream: TextIO, *, live: bool) -> None:
        self.stream, self.live = stream, live
        self._state: tuple[str, int, int | None, str] | None = None
        self._began = 0.0
        self._over = threading.Event()
        self._clock: threading.Thread | None = None

    def __call__(self, stage: str, done: int = 0, total: int | None = None, note: str = "") -> None:
        """Show how far ``stage`` is: ``done`` of ``total`` (None: nobody knows)."""
        if self._state is None or self._state[0] != stage:
            self._began = time.monotonic()
        self._state = (stage, done, total, note)
        if self.live and self._clock is None:
            self._draw()
            self._clock = threading.Thread(target=self._run, name="progress", daemon=True)
            self._clock.start()

    def _run(self) -> None:
        while not self._over.wait(_BAR_EVERY):
            self._draw()

    def _draw(self) -> None:
        if self._state is None:
            return
        stage, done, total, note = self._state
        parts = [stage]
        if total:
            filled = min(20, 20 * done // total)
            parts.append(f"[{'#' * filled}{'.' * (20 - filled)}] {count(done)}/{count(total)}")
        elif done:
            parts.append(count(done))
        parts += [note] * bool(note) + [f"{time.monotonic() - self._began:.0f}s"]
        line = _cut("  ".join(parts), shutil.get_terminal_size().columns - 1)
        _write(self.stream, f"\r\x1b[K{line}", end="")

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


# --- text -------------------------------------------------------------------------------------------------------------


def cell(value: Any) -> str:
    """A value as people read it: one line, no control characters, and null not to be taken for the text ``null``."""
    if isinstance(value, str):
        return _text_cell(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ") + "Z"
    names = {None: "null", True: "true", False: "false"}
    return names[value] if value is None or isinstance(value, bool) else str(value)


def _text_cell(text: str) -> str:
    if text in ("", "null") or text != text.strip():
        return json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def plain(value: Any) -> Any:
    """A value as JSON has it: dates and decimals as text, bytes in hexadecimal, NaN and infinities by name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def count(number: int) -> str:
    """A number with its thousands set apart: ``1,494``."""
    return f"{number:,}"


def aligned(rows: Sequence[Sequence[str]], right: Iterable[int] = (), width: int | None = None) -> list[str]:
    """Rows of cells as lines: columns aligned, those in ``right`` flush right, cut to ``width`` where there is one.

    The widest columns give way first; what is cut ends in an ellipsis. Linear in the number of cells.
    """
    if not rows:
        return []
    right = set(right)
    widths = [max(_columns(row[i]) for row in rows) for i in range(len(rows[0]))]
    if width is not None:
        _squeeze(widths, width - 2 * (len(widths) - 1))
    lines = []
    for row in rows:
        cells = []
        for i, (text, room) in enumerate(zip(row, widths, strict=True)):
            short = _cut(text, room)
            pad = " " * (room - _columns(short))
            cells.append(pad + short if i in right else short + pad)
        lines.append(_cut("  ".join(cells).rstrip(), width) if width else "  ".join(cells).rstrip())
    return lines


def _squeeze(widths: list[int], room: int, least: int = 4) -> None:
    while sum(widths) > room and max(widths) > least:
        widest = max(widths)
        place = widths.index(widest)
        second = max([least, *(w for w in widths if w < widest)])
        widths[place] -= min(widest - second, sum(widths) - room) or 1


def _columns(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _cut(text: str, room: int) -> str:
    if _columns(text) <= room:
        return text
    while text and _columns(text) > room - 1:
        text = text[:-1]
    return text + "…"


# --- streams ----------------------------------------------------------------------------------------------------------


def _write(stream: TextIO, text: str, end: str = "\n") -> None:
    # Nobody reading stderr is no reason to stop working.
    with suppress(BrokenPipeError):
        stream.write(text + end)
        stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


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


def _reader_gone(stream: TextIO) -> None:
    import typer

    # What is still in the buffer is written at exit: let it go nowhere, quietly.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    raise typer.Exit(0)
