"""Cells, tables, colours, and who gets which stream."""

from __future__ import annotations

import io
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ddcore.cli.output import Output, Progress, aligned, cell, plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("null", '"null"'),
        ("", '""'),
        (" a", '" a"'),
        ("a b", "a b"),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m"),
        ("Zürich", "Zürich"),
        (True, "true"),
        (-3, "-3"),
        (0.5, "0.5"),
        (b"\x00\xff", "0x00ff"),
        (date(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31 12:00:00Z"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_cell(value: Any, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (1.5, 1.5),
        (None, None),
        (True, True),
        (Decimal("1.50"), "1.50"),
        (date(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC), "2026-01-31T12:00:00.000005Z"),
        (b"\xff", "ff"),
    ],
)
def test_plain(value: Any, json: Any) -> None:
    assert plain(value) == json


def test_aligned() -> None:
    assert aligned([["stop", "total"], ["Zoo", "7"], ["Harbour", "13"]], right=[1]) == [
        "stop     total",
        "Zoo          7",
        "Harbour     13",
    ]


@pytest.mark.parametrize("width", [20, 40, 79])
def test_aligned_keeps_to_the_terminal(width: int) -> None:
    lines = aligned([["a" * 90, "b" * 30, "7"], ["x", "日本語" * 10, "12345"]], right=[2], width=width)
    assert all(len(line) <= width for line in lines)
    assert "…" in lines[0]
    assert lines[1].rstrip().endswith("12345")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colors_follow_stream_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Output()
    assert out.painted("x", "red", _Terminal()) == "\x1b[31mx\x1b[0m"
    assert out.painted("x", "red", io.StringIO()) == "x"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert out.painted("x", "red", io.StringIO()) != "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert out.painted("x", "red", _Terminal()) == "x"


def test_claimed_stdout_is_the_commands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    with out.claimed():
        print("the program talks")
        out.data("data")
    print("afterwards")
    said = capsys.readouterr()
    assert said.out == "data\nafterwards\n"
    assert said.err == "the program talks\n"


def test_claimed_gives_stdout_back_after_an_error() -> None:
    before = sys.stdout
    with pytest.raises(ZeroDivisionError), Output().claimed():
        _ = 1 // 0
    assert sys.stdout is before


def test_the_bar_is_drawn_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = _Terminal()
    with Progress(stream, live=True) as progress:
        progress("folding", 5, 10, "round 3")
    assert stream.getvalue().startswith("\r\x1b[Kfolding  [##########..........] 5/10  round 3  0s")
    assert stream.getvalue().endswith("\r\x1b[K")


def test_the_bar_keeps_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = _Terminal()
    with Progress(stream, live=True) as progress:
        progress("folding", 5, 10, "a note that goes on and on")
    assert len(stream.getvalue().split("\x1b[K")[1].rstrip("\r")) == 29


def test_no_bar_elsewhere() -> None:
    stream = io.StringIO()
    with Progress(stream, live=False) as progress:
        progress("folding", 5, 10)
    assert stream.getvalue() == ""
