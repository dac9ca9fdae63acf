"""What is known of the rows of an input before a program is planned: how many, and how many values a column has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ddcore.base.record import record


@record
class Statistics:
    """The rows of an input at one time, and by column its distinct values; columns that are not counted are missing."""

    rows: int
    distinct: Mapping[str, int] = field(default_factory=dict)
