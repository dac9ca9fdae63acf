"""The tuning object: documented, and without effect on results."""

from __future__ import annotations

from dataclasses import fields

import tuning

from ddcore.base.tuning import DEFAULT, Tuning


def test_the_page_has_the_settings_of_the_object() -> None:
    """And each says in which unit, and what for."""
    assert tuning.page(tuning.FILE.read_text("utf-8")) == tuning.FILE.read_text("utf-8")
    settings = Tuning.settings()
    assert [each.name for each in settings] == [each.name for each in fields(Tuning)]
    assert all(each.unit and each.meaning for each in settings)
    assert len({each.meaning for each in settings}) == len(settings)


def test_the_least_values_are_no_more_than_the_defaults() -> None:
    least = Tuning.least()
    assert all(each.least < each.default for each in Tuning.settings())
    assert all(getattr(least, each.name) == each.least for each in Tuning.settings())
    assert Tuning() == DEFAULT


def test_a_page_that_is_out_of_date_is_made_again() -> None:
    text = tuning.FILE.read_text("utf-8")
    old = text.replace(f"{DEFAULT.file_rows:,}", "7")
    assert old != text and tuning.page(old) == text
