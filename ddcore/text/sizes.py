"""Sizes of memory as people write them: ``2GiB``, ``512 MiB``, ``1.5GB``."""

from __future__ import annotations

import re
from typing import Any

LEAST = 1 << 20
_UNITS = {"B": 1}
_UNITS |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)}
_SIZE = re.compile(r"([0-9]{1,15})(\.[0-9]{1,6})? ?([A-Za-z]{1,3})")
_MOST = 2**62


def memory_size(text: Any) -> int:
    """The bytes that a text like ``2GiB`` says. Raises ValueError, with a sentence for the user."""
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    unit = _UNITS.get(match[3].upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"is a number and a unit (KiB, MiB, GiB, TiB, KB, MB, GB, TB), not {text!r:.60}")
    size = int(float(match[1] + (match[2] or "")) * unit) if match[2] else int(match[1]) * unit
    if not LEAST <= size <= _MOST:
        raise ValueError(f"is at least {shown_size(LEAST)} and less than {shown_size(_MOST)}, not {text!r:.60}")
    return size


def shown_size(size: int) -> str:
    """A size for people: ``2GiB``, ``1.5GiB``."""
    unit, letter = max(((1024**power, letter) for power, letter in enumerate("KMGT", 1) if size >= 1024**power),
                       default=(1, ""))  # fmt: skip
    return f"{size / unit:.4g}{letter}iB" if letter else f"{size}B"
