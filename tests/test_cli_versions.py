"""Versions as people type them."""

from __future__ import annotations

import pytest

from ddcore.base.errors import UsageError
from ddcore.io.ledger.readable import Readable
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.times import time_of

UP_TO_10 = Readable(("version",), ((0,),), ((11,),), VersionNames(("version",)))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0", 0),
        ("7", 7),
        ("10", 10),
        ("latest", 10),
        ("-1", 9),
        ("-10", 0),
        ("latest-3", 7),
        (" 4 ", 4),
        ("version=4", 4),
        ("0" * 5000 + "4", 4),
    ],
)
def test_one_version(text: str, version: int) -> None:
    assert UP_TO_10.time(text, "--at").version == version


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("11", "version 11 is not yet complete: the last folded version is 10"),
        ("-11", "goes back beyond version 0"),
        ("1.5", "'1.5' is not a version"),
        ("", "'' is not a version"),
        ("newest", "'newest' is not a version"),
        ("+3", "'+3' is not a version"),
        ("²", "'²' is not a version"),
        ("99999999999999999999", "beyond the greatest version"),
        ("9" * 5000, "beyond the greatest version"),
        ("-" + "9" * 5000, "goes back beyond version 0"),
        ("-٣", "'-٣' is not a version"),
        ("day=7", "there is no time dimension 'day'; there are: version"),
        ("version=11", "version 11 is not yet complete"),
    ],
)
def test_one_version_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        UP_TO_10.time(text, "--at")
    assert says in caught.value.message
    assert caught.value.message.startswith("--at: ")


@pytest.mark.parametrize(
    ("first", "second", "pair"),
    [
        ("3", "7", (3, 7)),
        ("3..7", None, (3, 7)),
        ("..7", None, (None, 7)),
        ("3..", None, (3, 10)),
        ("..", None, (None, 10)),
        ("latest-2", "latest", (8, 10)),
        ("-2..-1", None, (8, 9)),
        ("7", "3", (7, 3)),
    ],
)
def test_range(first: str, second: str | None, pair: tuple[int | None, int]) -> None:
    assert UP_TO_10.range(first, second) == tuple(map(time_of, pair))


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("3", None, "needs two versions"),
        ("3..5", "7", "not both"),
        ("3", "5..7", "not both"),
        ("3..99", None, "B: version 99 is not yet complete"),
        ("99", "3", "A: version 99 is not yet complete"),
    ],
)
def test_range_refused(first: str, second: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        UP_TO_10.range(first, second)
