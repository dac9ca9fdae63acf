"""Cells, tables, colours, and who gets which stream."""

from __future__ import annotations

import io
import json
import random
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ddcore.cli.output import Output, Progress
from ddcore.cli.text import aligned, cell, laid_out, plain


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


def test_a_long_value_is_cut_and_its_length_told() -> None:
    assert cell("x" * 100_000) == "x" * 1_000 + "… (100,000 characters)"
    assert cell(b"\x01" * 50_000) == "0x" + "01" * 499 + "… (100,002 characters)"
    assert plain("x" * 100_000) == "x" * 100_000
    started = time.process_time()
    assert len(aligned([["é" * 100_000]], width=80)[0]) == 80
    assert time.process_time() - started < 10, "linear in the length of the value"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("bell\x07", "bell\\x07"),
        ("\x7f", "\\x7f"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("name\udcff", "name\\udcff"),
        (" \x1b[0m ", '" \\u001b[0m "'),
        (" \x9b ", '" \\x9b "'),
    ],
)
def test_what_a_terminal_would_obey_is_spelt_out_everywhere(
    raw: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cell(raw) == text
    out = Output()
    out.data(raw, (raw, "red"))
    out.say(raw)
    out.warn(raw)
    out.record(value=raw)
    lines, errors = (stream.splitlines() for stream in capsys.readouterr())
    assert all(line.isprintable() for line in (*lines, *errors))
    assert (len(lines), len(errors)) == (2, 2)
    assert json.loads(lines[1]) == {"value": raw}
    assert next(line for _, line in laid_out([raw], [["1"]], [0], None)).isprintable()


def test_a_json_line_keeps_its_letters(capsys: pytest.CaptureFixture[str]) -> None:
    Output().record(value="日本é\x1b\U000e0001")
    line = capsys.readouterr().out
    assert line == '{"value": "日本é\\u001b\\udb40\\udc01"}\n'


def test_the_middle_of_a_long_message_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Output().say("--at: '" + "9" * 100_000 + "' is not a version")
    line = capsys.readouterr().err
    assert len(line) < 2_100
    assert line.startswith("--at: '999")
    assert line.endswith("999' is not a version\n")
    assert "(98,025 characters left out)" in line


# --- wide tables ------------------------------------------------------------------------------------------------------

NAMES = ["a_rather_long_name", "another_long_name", "amount", "note"]
ROWS = [["Harbour", "x" * 50, "12345678901", "y" * 90], ["Zoo", "z", "7", "n"]]


def test_values_are_cut_and_names_are_not() -> None:
    lines = [line for _, line in laid_out(NAMES, ROWS, [2], 80)]
    assert len(lines) == 3
    assert lines[0].split() == NAMES
    assert "12345678901" in lines[1]
    assert "…" in lines[1]
    assert all(len(line) <= 80 for line in lines)


def test_a_table_that_cannot_fit_has_one_line_per_column() -> None:
    lines = list(laid_out(NAMES, ROWS, [2], 50))
    assert lines[:5] == [
        (0, "a_rather_long_name  Harbour"),
        (0, "another_long_name   xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"),
        (0, "amount              12345678901"),
        (0, "note                yyyyyyyyyyyyyyyyyyyyyyyyyyyyy…"),
        (None, ""),
    ]
    assert lines[5] == (1, "a_rather_long_name  Zoo")


def test_the_vertical_form_on_demand_and_without_a_terminal() -> None:
    assert [line for _, line in laid_out(["", "k", "total"], [["~", "a", "1 -> 2"], ["+12", "b", "3"]], [2], None,
                                         vertical=True)] == [
        "~  k      a",
        "   total  1 -> 2",
        "",
        "+12 k      b",
        "    total  3",
    ]  # fmt: skip


def test_no_name_and_no_number_is_ever_cut() -> None:
    for seed in range(300):
        dice = random.Random(seed)
        names = ["n" * dice.randrange(1, 25) + str(location) for location in range(dice.randrange(1, 12))]
        right = [location for location in range(len(names)) if dice.random() < 0.4]
        rows = [
            [
                str(dice.randrange(10**12)) if location in right else "v" * dice.randrange(120)
                for location in range(len(names))
            ]
            for _ in range(4)
        ]
        width = dice.randrange(40, 160)
        lines = [line for _, line in laid_out(names, rows, right, width)]
        whole = "\n".join(lines)
        assert all(name in whole for name in names), f"seed {seed}"
        assert all(row[location] in whole for row in rows for location in right), f"seed {seed}"
        assert all(len(line) <= width for line in lines), f"seed {seed}"


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
    captured = capsys.readouterr()
    assert captured.out == "data\nafterwards\n"
    assert captured.err == "the program talks\n"


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
