"""The glossary has the words of the field, each once, short, and with a link to more."""

from __future__ import annotations

import re

from pages import DOCS

ENTRIES = re.findall(r"^### (.+)\n\n((?:.+\n)+)", (DOCS / "glossary.md").read_text("utf-8"), flags=re.MULTILINE)


def test_the_words_of_the_field_are_there_once() -> None:
    terms = [term.lower() for term, _ in ENTRIES]
    assert len(set(terms)) == len(terms)
    words = (
        "collection update time diff version frontier since upper consolidate arrange batch trace pending join reduce"
    )
    wanted = {*words.split(), "iterate", "partition", "parallelism", "round", "output log", "restatement"}
    assert wanted - set(terms) == set()


def test_every_entry_is_short_and_leads_on() -> None:
    for term, text in ENTRIES:
        assert len(text.split()) < 60, term
        assert re.search(r"\]\([a-z-]+\.md(#[\w-]+)?\)", text), term
