"""Secrets in settings: recognised by the names of settings, and masked in all text that leaves this process.

Libraries quote settings in their errors, so every message, traceback and log goes through :func:`masked`. Must not
import anything heavy: the command line loads it at start-up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "*****"
# As in Java's regular expressions: Spark gets it as spark.redaction.regex.
PATTERN = r"(?i)secret|passw|passphrase|token|credential|(access|account|api|private|shared|sas)[._-]?key|[._-]key$"
_NAME = re.compile(PATTERN)
_USER_INFO = re.compile(r"(?<=://)[^\s/@'\"]+(?=@)")
_SHORTEST = 4  # characters: to mask a shorter value would spoil every message, and hide nothing
_SWITCHES = {"true", "false", "none", "null"}

# Of the process: any text that leaves it may quote a secret, also what a library logs in a thread of its own, and no
# secret that was read once may be forgotten.
_secrets: set[str] = set()


def is_secret(name: str) -> bool:
    """Whether the name of a setting says that its value is a secret."""
    return _NAME.search(name) is not None


def keep_secret(settings: Mapping[str, object] | Iterable[tuple[str, object]]) -> None:
    """From now on, mask the values of these settings whose names are those of secrets.

    Values inside tables and lists count, too, under the name of the setting and the names within.
    """
    for name, value in settings.items() if isinstance(settings, Mapping) else settings:
        if isinstance(value, Mapping):
            keep_secret((f"{name}.{inner}", secret) for inner, secret in value.items())
        elif isinstance(value, list | tuple):
            keep_secret((name, item) for item in value)
        elif is_secret(name) and len(text := str(value).strip()) >= _SHORTEST and text.lower() not in _SWITCHES:
            # Also as messages quote it: in Python, in JSON, in a URL.
            spellings = {str(value), text, repr(text)[1:-1], json.dumps(text)[1:-1], quote(text, safe="")}
            _secrets.update(spellings)


def masked(text: str) -> str:
    """``text`` without any known secret, and without user names and passwords in URLs."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _USER_INFO.sub(MASK, text) if "://" in text else text
