"""What ``source = { ... }`` of an input in ``dd.toml`` says: where its rows come from, and how fresh they must be."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from ddcore.base.errors import UsageError
from ddcore.base.record import record
from ddcore.io.project.ingest_settings import FORMS, IngestSettings
from ddcore.io.project.section import Section, quoted
from ddcore.io.storage.address import is_url
from ddcore.program import data_tests
from ddcore.text.wording import listed, shown

_OWN = ("path", "expect", "severity")
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *(second|minute|hour|day|week)s?")


@record
class DeclaredSource:
    """A declared source: its ``paths`` as they are written, the ``locations`` that they name, and the options of
    ``dd ingest`` by their names. A relative path begins at the project's folder, wherever the command runs.

    ``expect`` is the greatest age that the newest rows of the input may have; a greater one is an error, or with the
    ``severity`` ``warn`` a warning.
    """

    paths: tuple[str, ...]
    locations: tuple[str, ...]
    options: Mapping[str, Any]
    expect: timedelta | None = None
    severity: str = data_tests.ERROR

    @property
    def form(self) -> str:
        """What the source holds, in the words of ``dd ingest``."""
        return IngestSettings.of(self.options).form

    @property
    def shown(self) -> str:
        """The places and the form, for people: ``exports/links.csv as snapshot``."""
        return f"{listed(self.paths)}{f' as {self.form}' * (self.form != 'log')}"

    def settings(self, said: Mapping[str, Any]) -> IngestSettings:
        """The settings of an ingest: what the options of a command say, else what is declared. UsageError."""
        given = {name: value for name, value in said.items() if not (value is None or value is False or value == [])}
        forms = FORMS if any(form in given for form in FORMS) else ()  # another form replaces the declared one
        kept = {name: value for name, value in self.options.items() if name not in forms}
        return IngestSettings.of({**kept, **given})


def declared_source(section: Section, root: Path) -> DeclaredSource | None:
    """The source that the section of an input declares, for a project in the folder ``root``. UsageError."""
    table = section.table.get("source")
    if table is None:
        return None
    if not isinstance(table, dict):
        what = f"must be a table, not {quoted(table)}"
        raise section.wrong("source", what, 'say source = { path = "exports/links-*.csv", append = true }')
    one = Section(section.file, f"{section.name}.source", table)
    options = {name: value for name, value in table.items() if name not in _OWN}
    try:
        IngestSettings.of(options).check()
    except UsageError as error:
        message = re.sub("--([a-z-]+)", lambda option: option[1].replace("-", "_"), error.message)
        raise UsageError(f"{shown(section.file)}: [{one.name}] {message}", error.hint) from None
    severity = one.one_of("severity", data_tests.SEVERITIES)
    paths = _paths(one)
    named = tuple(path if is_url(path) else os.path.join(root, os.path.expanduser(path)) for path in paths)
    return DeclaredSource(paths, named, options, _duration(one), severity)


def _paths(section: Section) -> tuple[str, ...]:
    value = section.table.get("path")
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) and path.strip() for path in paths):
        what = "is missing" if value is None else f"must be text or a list of texts, not {quoted(value)}"
        raise section.wrong("path", what, 'name a file, a folder, a glob or a Delta table: path = "exports/*.csv"')
    if with_nul := [path for path in paths if "\0" in path]:
        raise section.wrong("path", f"{quoted(with_nul[0])} has a NUL character", "check the program that wrote it")
    return tuple(paths)


def _duration(section: Section) -> timedelta | None:
    text = section.text("expect")
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if not match or not float(match[1]):
        what = f"{quoted(text)} is no time span"
        raise section.wrong("expect", what, 'for example: expect = "1 day", "36 hours" or "15 minutes"')
    return timedelta(**{f"{match[2]}s": float(match[1])})
