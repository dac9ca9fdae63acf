"""What ``[tests.NAME]`` of ``dd.toml`` says: collections that must stay empty, keys, sums that must agree."""

from __future__ import annotations

import re
from dataclasses import replace

from ddcore.base.errors import UsageError
from ddcore.io.project.section import Section, quoted
from ddcore.program import data_tests
from ddcore.program.data_tests import DataTest
from ddcore.text.wording import listed, shown

_OF_TESTS = ("severity", "from_version")
_KINDS_OF_TESTS = {"empty": ("empty", "where"), "unique": ("unique", "of", "where"), "agree": ("agree", "by")}


def declared_tests(section: Section, dims: tuple[str, ...], text: str) -> tuple[DataTest, ...]:
    """The tests of a file with this text."""
    tests = []
    for name, table in section.table.items():
        section.check_name(name)
        line, file = _line(text, name), shown(section.file)
        try:
            one = _test(Section(section.file, f"tests.{name}", table), name, dims)
        except UsageError as error:
            message = error.message.replace(f"{file}: [tests", f"{file}:{line}: [tests", 1)
            raise UsageError(message, error.hint) from None
        tests.append(replace(one, source_line=f"{section.file.name}:{line}"))
    section.check_case(section.table)
    return tuple(tests)


def _test(section: Section, name: str, dims: tuple[str, ...]) -> DataTest:
    kinds = [kind for kind in _KINDS_OF_TESTS if kind in section.table]
    if len(kinds) != 1:
        what = f"has {listed(kinds)}: a test is one of them" if kinds else "does not say what it tests"
        raise UsageError(
            f"{shown(section.file)}: [{section.name}] {what}",
            'say empty = "OUTPUT", or of = "OUTPUT" and unique = ["COLUMN"], or agree = [{ of = "OUTPUT" }, ...]',
        )
    section.only((*_KINDS_OF_TESTS[kinds[0]], *_OF_TESTS))
    severity, start = section.one_of("severity", data_tests.SEVERITIES), section.table.get("from_version", 0)
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise section.wrong("from_version", f"must be the number of a version, from 0 up, not {quoted(start)}")
    if start and len(dims) > 1:
        raise section.wrong("from_version", f"the times here have the dimensions {listed(dims)}", "leave it out")
    return DataTest(name, _check(section, kinds[0]), severity, start)


def _line(text: str, name: str) -> int:
    """The line at which a test's section begins; 1 where it is written in another way."""
    heading = re.search(rf"""^[ \t]*\[\s*tests\s*\.\s*["']?{name}["']?\s*\]""", text, flags=re.MULTILINE)
    return text.count("\n", 0, heading.start()) + 1 if heading else 1


def _check(section: Section, kind: str) -> data_tests.Check:
    where = section.text("where") or ""
    if kind == "empty":
        return data_tests.Empty(section.text("empty") or "", where)
    if kind == "unique":
        return data_tests.Unique(_of(section), _some(section, "unique"), where)
    sides = section.table["agree"]
    if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(side, dict) for side in sides):
        raise section.wrong(
            "agree", f"must be a list of two sides, not {quoted(sides)}",
            'say agree = [{ of = "OUTPUT", sum = "COLUMN" }, { of = "OTHER", sum = "COLUMN" }]',
        )  # fmt: skip
    left, right = (_side(Section(section.file, section.name, side)) for side in sides)
    return data_tests.Agree((left, right), _some(section, "by") if "by" in section.table else ())


def _side(section: Section) -> data_tests.Side:
    section.only(("of", "sum", "where"))
    return data_tests.Side(_of(section), section.text("sum") or "", section.text("where") or "")


def _of(section: Section) -> str:
    of = section.text("of")
    if of is None:
        raise section.wrong("of", "is missing", "name an input or an output of the program")
    return of


def _some(section: Section, key: str) -> tuple[str, ...]:
    names = section.names(key)
    if not names:
        raise section.wrong(key, "names no column", 'say which, for example ["id"]')
    return names
