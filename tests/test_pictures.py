"""The pictures of the README are what the commands draw now."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pictures
from service_map import service_map


def test_pictures_are_current() -> None:
    texts = dict(pictures.pictures())
    assert sorted(texts) == sorted(file.name for file in pictures.FOLDER.iterdir())
    for name, text in texts.items():
        assert (pictures.FOLDER / name).read_text(encoding="utf-8") == text, "to draw them anew: make pictures"
        ET.fromstring(text)
        assert f"docs/pictures/{name}" in (pictures.TOP / "README.md").read_text(encoding="utf-8")


def test_a_terminal_shows_what_was_printed() -> None:
    text = pictures.terminal("dd diff <x>", "x (a int64)\n+  1\n-  2 & 3\n~  4 -> 5\n")
    assert "$ dd diff &lt;x&gt;" in text and '<text class="minus" x="16"' in text and "2 &amp; 3" in text
    assert len(list(ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text"))) == 5


def test_a_service_map_shows_what_is_affected_and_the_wrong_row() -> None:
    needs = [("web", "auth"), ("auth", "reports"), ("reports", "lake"), ("shop", "stock<")]
    affected = {"lake": 0, "reports": 1, "auth": 2, "web": 3}
    root = ET.fromstring(service_map(needs, affected, ("auth", "reports"), "slow"))
    space = "{http://www.w3.org/2000/svg}"
    edges = {path.findtext(f"{space}title"): path.get("class") for path in root.iter(f"{space}path")}
    edges.pop(None)  # arrow heads
    assert edges == {
        "web needs auth": "path", "auth needs reports": "wrong", "reports needs lake": "path",
        "shop needs stock<": "flow",
    }  # fmt: skip
    kinds = [rect.get("class", "") for rect in root.iter(f"{space}rect")]
    assert sorted(kinds) == ["cause", "hit", "hit", "hit", "page", "service", "service"]
    tops = {text.text: float(text.get("y", 0)) for text in root.iter(f"{space}text")}
    assert tops["web"] < tops["auth"] < tops["reports"] < tops["lake"] and tops["shop"] < tops["stock<"]
