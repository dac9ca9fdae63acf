"""The pages in a real browser: light and dark, wide and narrow. ``make test-browser`` runs this.

The screenshots stay in ``build/screenshots``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import browser
import pytest

from ddcore.cli.main import run_command

TOP = Path(__file__).resolve().parent.parent
PICTURES = TOP / "build" / "screenshots"
SCHEMES, WIDTHS = ("light", "dark"), (1280, 390)
# The least ratio of contrast for text of this size, by the rules for accessible pages (WCAG 2.1, AA).
CONTRAST = 4.5

pytestmark = [pytest.mark.browser, pytest.mark.long]

CONTRASTS = """
const light = c => { const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 :
  Math.pow((v + 0.055) / 1.055, 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const parse = text => text.match(/[\\d.]+/g).map(Number);
const behind = element => { for (let e = element; e; e = e.parentElement) {
  const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); }
  return [255, 255, 255]; };
const found = [];
for (const e of document.querySelectorAll('h1, h2, p, dt, dd, small, th, td, figcaption, summary, del, ins, .sign')) {
  if (!e.innerText || !e.innerText.trim()) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color).slice(0, 3)), light(behind(e))];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + ': ' + e.innerText.slice(0, 40)]);
}
return found;
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if missing := browser.missing():
        pytest.fail(missing)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with browser.browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of the demo's project."""
    folder = tmp_path_factory.mktemp("pages") / "outages"
    shutil.copytree(TOP / "examples" / "outages", folder)
    where = ["--project", str(folder), "--quiet"]
    for part in ("1", "2"):
        for name in ("dependencies", "incidents"):
            source = str(TOP / "sample_data" / f"{name}-{part}.parquet")
            assert run_command(["ingest", name, source, "--engine", "inline", *where]) == 0
        assert run_command(["run", "--engine", "inline", *where]) == 0
    where = where[:2]
    commands = {
        "report": ["report"], "reports": ["report", "1", "2"], "diff": ["diff", "blast_radius", "20", "24", "--html"]
    }  # fmt: skip
    files = {name: folder / f"{name}.html" for name in commands}
    for name, words in commands.items():
        assert run_command([*words, "-o", str(files[name]), *where]) == 0
    return files


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["report", "reports", "diff"])
def test_a_page_looks_right(
    name: str, scheme: str, width: int, window: browser.Browser, pages: dict[str, Path]
) -> None:
    window.open(pages[name], width=width, scheme=scheme)
    picture = PICTURES / f"{name}-{scheme}-{width}.png"
    window.picture(picture)
    assert picture.stat().st_size > 10_000
    assert window.logs("browser") == []
    assert window.requests() == [pages[name].resolve().as_uri()]
    assert window.run("return document.documentElement.scrollWidth") <= width  # only tables and drawings scroll
    text = window.run("return document.body.innerText")
    assert "blast_radius" in text and len(text) > 400
    page, ink = (window.run(f"return getComputedStyle(document.body).{item}") for item in ("backgroundColor", "color"))
    dark = sum(map(int, page[4:-1].split(","))) < sum(map(int, ink[4:-1].split(",")))
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("name", ["report", "reports"])
def test_tables_and_the_dataflow_fit_the_screen(name: str, window: browser.Browser, pages: dict[str, Path]) -> None:
    window.open(pages[name], width=1280, scheme="light")
    cut = "[...document.querySelectorAll('.scroll:has(table)')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert window.run(f"return {cut}") == 0, "the last column of each table is there"
    height = "document.querySelector('.scroll:has(svg.dataflow)').getBoundingClientRect().height"
    assert 0 < window.run(f"return {height}") <= 0.61 * 900, "there is room for what comes after it"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["report", "diff"])
def test_text_can_be_read(name: str, scheme: str, window: browser.Browser, pages: dict[str, Path]) -> None:
    window.open(pages[name], width=1280, scheme=scheme)
    contrasts = window.run(CONTRASTS)
    assert len(contrasts) > 20
    assert [told for ratio, told in contrasts if ratio < CONTRAST] == []
    sizes = window.run(
        "return [...document.querySelectorAll('svg.chart text, svg.dataflow text, td, p')]"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12


@pytest.mark.parametrize("width", WIDTHS)
def test_drawings_are_drawn(width: int, window: browser.Browser, pages: dict[str, Path]) -> None:
    """Boxes and cells have an area and do not lie on each other; their names are inside."""
    window.open(pages["reports"], width=width, scheme="light")
    shapes: list[dict[str, Any]] = window.run(
        "return [...document.querySelectorAll('svg.dataflow g')].map(g => { const [r, t] = [g.querySelector('rect'),"
        " g.querySelector('text')].map(e => e.getBoundingClientRect()); return {x: r.x, y: r.y, w: r.width,"
        " h: r.height, inside: t.x >= r.x && t.right <= r.right + 1 && t.bottom <= r.bottom + 1}; })"
    )
    assert len(shapes) == 20 and all(shape["w"] > 20 and shape["h"] > 10 and shape["inside"] for shape in shapes)
    for a, b in pairwise(sorted(shapes, key=lambda value: (value["y"], value["x"]))):
        assert a["y"] + a["h"] <= b["y"] or a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
    cells = window.run("return [...document.querySelectorAll('svg.heat rect:not(.none)')].map(e => e.getBBox().width)")
    assert len(cells) > 40 and min(cells) > 5
    for kind in ("series", "bar", "dot"):
        assert window.run(f"return document.querySelectorAll('svg.chart .{kind}').length") > 0
    labels = window.run(
        "return [...document.querySelectorAll('svg.chart:not(.heat)')].map(s => [...s.querySelectorAll('text')]"
        ".filter(t => t.getAttribute('text-anchor') == 'middle').map(t => t.getBoundingClientRect())"
        ".map(r => [r.left, r.right]))"
    )
    assert len(labels) == 4
    for spans in labels:
        assert all(a[1] <= b[0] for a, b in pairwise(spans)), spans
    assert window.run(
        "return [...document.querySelectorAll('svg')].every(s => s.querySelector('title') || s.ariaLabel)"
    )
