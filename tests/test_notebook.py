"""The notebook of examples/: executed from nothing, every cell shows what is stored in it."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TOP = Path(__file__).resolve().parent.parent
NOTEBOOK = TOP / "examples" / "outages" / "notebook.ipynb"
RENEW = "to store what it shows now: .venv/bin/python tools/notebook.py"
# What each run of it has of its own: the moment, and the seconds.
_OWN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\dZ|\b\d+\.\d+s\b")


def stable(text: Any) -> str:
    return _OWN.sub("#", "".join(text))


def shown(notebook: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The source of each cell of code, and what it shows: text, and the HTML of our own objects."""
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        texts = []
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            texts.append(stable(data["text/plain"]))
            html = stable(data.get("text/html", ""))
            texts += [html] if 'class="ddcore"' in html else []
        cells.append(("".join(cell["source"]), texts))
    return cells


def differences(stored: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    """A line for each cell that shows something else than is stored."""
    return [
        f"{source}\n  is stored with {before}\n  and shows {after}"
        for (source, before), (_, after) in zip(shown(stored), shown(fresh), strict=True)
        if before != after
    ]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("notebook") / "fresh.ipynb"
    command = [sys.executable, str(TOP / "tools" / "notebook.py"), "--output", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    notebook: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return notebook


def test_every_cell_shows_what_is_stored(fresh: dict[str, Any]) -> None:
    stored = json.loads(NOTEBOOK.read_text("utf-8"))
    assert len(shown(stored)) > 10 and any(len(texts) > 1 for _, texts in shown(stored))
    found = differences(stored, fresh)
    assert not found, "\n".join([*found, RENEW])


def test_it_shows_each_of_our_objects_as_html(fresh: dict[str, Any]) -> None:
    html = "".join(text for _, texts in shown(fresh) for text in texts if 'class="ddcore"' in text)
    for part in (
        "<strong>demo</strong>",
        "<strong>affected</strong>",
        'class="change"',
        "Collection",
        'class="dataflow"',
        "ingest 4",
    ):
        assert part in html, part


def test_a_changed_output_is_seen(fresh: dict[str, Any]) -> None:
    other = copy.deepcopy(fresh)
    last = [cell for cell in other["cells"] if cell["cell_type"] == "code"][3]
    last["outputs"][0]["data"]["text/plain"] = "another row"
    (line,) = differences(fresh, other)
    assert "and shows ['another row'" in line


def test_the_stored_one_names_no_machine() -> None:
    text = NOTEBOOK.read_text("utf-8")
    assert str(TOP) not in text and "/tmp/" not in text and "ipykernel_" not in text
