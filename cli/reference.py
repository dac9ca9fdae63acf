"""Generates docs/cli.md from the commands' own help: ``python -m ddcore.cli.reference``.

With ``--check`` it writes nothing and exits with 1 when the file is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from ddcore.cli.main import COMMANDS, app_of

FILE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
_WIDTH = 100
_HEAD = """\
# The command line

`python -m ddcore.cli.reference` generates this page from the commands' own help; a test compares the two.

`dd` and `ddcore` are the same program: `dd` for people, `ddcore` for cron, Airflow, CI and every script, because where
no virtual environment is active `dd` is the program that copies files.

Tables are for people: a value of more than 1,000 characters is cut wherever the table goes, also into a pipe, and on a
terminal values are cut to its width; names and numbers are not. Where a table is too wide even so, each row is shown
with one line per column. Control characters, terminal escapes among them, are printed as `\\x1b`. Programs read
`--json`: there every value is whole.

`dd --install-completion` teaches the shell to complete commands and options, and the inputs, outputs, key columns,
engines, runs and labels of the project at hand. It is tried in bash, zsh and fish.

See also: [exit codes](exit-codes.md), [environment variables](environment.md), [schedulers](schedulers.md).
"""


def reference() -> str:
    """The page's text."""
    group: Any = typer.main.get_command(app_of(COMMANDS))
    root = typer.Context(
        group, info_name="dd", terminal_width=_WIDTH, max_content_width=_WIDTH, **group.context_settings
    )
    parts = [_HEAD, _section("dd", group.get_help(root))]
    for name, command in group.commands.items():
        context = typer.Context(
            command, info_name=name, parent=root, terminal_width=_WIDTH, max_content_width=_WIDTH
        )  # fmt: skip
        parts.append(_section(f"dd {name}", command.get_help(context)))
    return "\n".join(parts)


def _section(title: str, text: str) -> str:
    lines = "\n".join(f"    {line}".rstrip() for line in text.strip().splitlines())
    return f"## {title}\n\n{lines}\n"


def main() -> int:
    """Write the page, or compare it."""
    text = reference()
    if "--check" in sys.argv[1:]:
        if FILE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/cli.md is out of date; run: python -m ddcore.cli.reference", file=sys.stderr)
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
