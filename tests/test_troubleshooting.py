"""Every message that docs/troubleshooting.md explains is one that the sources write."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pages import DOCS

from ddcore.io.project.project import FILE_NAME

TOP = DOCS.parent
PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
QUOTED = re.findall(r"^### (.*)$", PAGE, flags=re.MULTILINE)


def texts_of(file: Path) -> set[str]:
    """The texts of a module, with ``…`` for each value that is formatted into one."""
    return {text for node in ast.walk(ast.parse(file.read_text("utf-8"))) if (text := _text(node))}


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.FormattedValue):
        return FILE_NAME if isinstance(node.value, ast.Name) and node.value.id == "FILE_NAME" else "…"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_part_of(message: str, text: str) -> bool:
    """Whether a text of the sources writes a message. At its ends ``…`` stands for anything, also for nothing."""
    return message.removeprefix("…").removesuffix("…").strip() in text


def test_messages_are_in_the_sources() -> None:
    folders = ("ddcore", "io", "jobs", "cli")
    texts = {text for folder in folders for file in (TOP / folder).rglob("*.py") for text in texts_of(file)}
    assert len(QUOTED) >= 40
    assert all(re.fullmatch(r"`[^`]{12,}`", quoted) for quoted in QUOTED), QUOTED
    unknown = [quoted for quoted in QUOTED if not any(is_part_of(quoted.strip("`"), text) for text in texts)]
    assert unknown == []


def test_a_message_that_no_source_writes_is_noticed() -> None:
    module = ast.parse('raise DataError(f"{name}: no rows " f"in {place}: it is empty", "leave it out")')
    texts = {text for node in ast.walk(module) if (text := _text(node))}
    assert "…: no rows in …: it is empty" in texts
    for message, known in {
        "…: no rows in …: it is empty": True,
        "no rows in …": True,
        "no rows in …: nothing is in it": False,
        "no rows at …": False,
    }.items():
        assert any(is_part_of(message, text) for text in texts) == known, message


def test_every_message_has_an_explanation() -> None:
    parts = re.split(r"^### .*$", PAGE, flags=re.MULTILINE)[1:]
    assert all(len(re.split(r"^## ", part, flags=re.MULTILINE)[0].split()) > 8 for part in parts)
