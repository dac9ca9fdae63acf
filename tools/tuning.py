"""Writes the table of docs/tuning.md from :class:`ddcore.base.tuning.Tuning`: ``python tools/tuning.py``.

With ``--check`` it writes nothing and exits with 1 when the table is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ddcore.base.tuning import Tuning

FILE = Path(__file__).resolve().parent.parent / "docs" / "tuning.md"
HEAD = "| name | default | least | unit | what it decides |\n| --- | --: | --: | --- | --- |\n"


def table() -> str:
    """The settings as a table in Markdown."""
    rows = (f"| `{name}` | {default:,} | {least:,} | {unit} | {meaning} |\n"
            for name, default, least, unit, meaning in Tuning.settings())  # fmt: skip
    return HEAD + "".join(rows)


def page(text: str) -> str:
    """The page with the table of now in the place of its own."""
    before, _, rest = text.partition(HEAD)
    after = rest.splitlines(keepends=True)
    while after and after[0].startswith("|"):
        del after[0]
    return before + table() + "".join(after)


def main() -> int:
    """Write the page, or compare it."""
    before = FILE.read_text(encoding="utf-8")
    after = page(before)
    if "--check" in sys.argv[1:]:
        if before != after:
            print("docs/tuning.md is out of date; run: python tools/tuning.py", file=sys.stderr)
        return int(before != after)
    FILE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
