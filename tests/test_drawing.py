"""Drawings of plans: what is in the diagram, and that its SVG and Mermaid forms can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from programs import case
from test_inspect import doubled, reach
from test_plan import PROGRAMS
from test_semantics import strongly_connected

import ddcore as dd
from ddcore.drawing.diagram import Box, Diagram, diagram
from ddcore.drawing.mermaid import mermaid
from ddcore.drawing.svg import svg
from ddcore.planning.planner import build

SCHEMAS = {"edges": {"a": "int64", "b": "int64"}, "nodes": {"a": "int64"}}
EDGES = {"edges": {"src": "int64", "dst": "int64"}}
ODD = 'a"]; end <b>&amp; \x1b[1m\n日本 |#%%{'


def drawn(program: Any, schemas: Any) -> Diagram:
    return diagram(build(program, schemas))


def oddly_named(t: Any) -> dict[str, Any]:
    odd = t.select(**{ODD: "n"})
    return {"out": odd.iterate(lambda w: w.group_by(ODD).agg(k=dd.count()).select(ODD)).select(n=dd.col(ODD))}


def random_program(seed: int) -> Diagram:
    times = {"version", "source", "region", "day", "revision", "diff"}
    frames = {name: frame.drop(times, strict=False) for name, frame in case(seed).frames.items()}
    return drawn(case(seed).program, {name: frame.schema for name, frame in frames.items()})


DRAWINGS: dict[str, Callable[[], Diagram]] = {
    "loops in a loop": partial(drawn, strongly_connected, EDGES),
    "inspected": partial(drawn, reach, {**EDGES, "roots": {"node": "int64"}}),
    "priorities": partial(drawn, doubled, {"numbers": {"n": "int64"}}),
    "odd names": partial(drawn, oddly_named, {"t": {"n": "int64"}}),
    **{program.__name__: partial(drawn, program, SCHEMAS) for program in PROGRAMS},
    **{f"random {seed}": partial(random_program, seed) for seed in range(40)},
}


@pytest.fixture(scope="module", params=DRAWINGS)
def drawing(request: pytest.FixtureRequest) -> Diagram:
    return DRAWINGS[request.param]()


# -- the diagram ------------------------------------------------------------------------------------------------------


def titled(drawing: Diagram, title: str) -> Box:
    (box,) = (box for box in drawing.boxes if box.title == title)
    return box


def sources(drawing: Diagram, box: Box) -> list[tuple[str, bool]]:
    return [(edge.source.title, edge.feedback) for edge in drawing.reads(box)]


@pytest.mark.sample(17)
def test_readers_come_after_what_they_read(drawing: Diagram) -> None:
    assert [box.number for box in drawing.boxes] == [*range(1, len(drawing.boxes) + 1)]
    assert all(edge.source.number < edge.target.number for edge in drawing.edges if not edge.feedback)


def test_boxes_of_a_loop_are_next_to_each_other(drawing: Diagram) -> None:
    parents = {frame.scope: frame.parent for frame in drawing.frames}
    for scope in parents:
        numbers = []
        for box in drawing.boxes:
            around = box.loop
            while around not in (0, scope):
                around = parents[around]
            numbers += [box.number] if around == scope else []
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]


def test_what_a_loop_is_drawn_as() -> None:
    drawing = DRAWINGS["inspected"]()
    assert [(frame.scope, frame.parent, frame.limit) for frame in drawing.frames] == [(1, 0, "at most 10,000 rounds")]
    variable, distinct = titled(drawing, "variable"), titled(drawing, "distinct")
    assert sources(drawing, variable) == [("input roots", False), ("distinct", True)]
    assert sources(drawing, titled(drawing, "join on node = src")) == [("variable", False), ("input edges", False)]
    assert sources(drawing, titled(drawing, "output out")) == [("distinct", False)]
    assert sources(drawing, titled(drawing, "inspect inner")) == [("distinct", False)]
    assert (variable.loop, distinct.loop, titled(drawing, "inspect inner").loop) == (1, 1, 0)
    assert re.fullmatch(r"test_inspect\.py:\d+", distinct.source_line)
    assert titled(drawing, "inspect inner").columns == ("node int64", "round int64")


def test_linear_operators_in_a_row_are_one_box() -> None:
    def program(t: Any) -> dict[str, Any]:
        kept = t.where("n > 1").where("n > 2").select(n="n + 1")
        return {"both": kept.select(n="n + 2").negate(), "one": kept}

    drawing = drawn(program, {"t": {"n": "int64"}})
    assert [box.title for box in drawing.boxes] == [
        "input t", "where x2, select", "select, negate", "output both", "output one",
    ]  # fmt: skip


def test_a_long_chain_is_told_in_short() -> None:
    def program(t: Any) -> dict[str, Any]:
        for number in range(3_000):
            t = t.negate() if number % 2 else t.concat(t)
        return {"out": t.negate()}

    drawing = drawn(program, {"t": {"n": "int64"}})
    assert [box.title for box in drawing.boxes] == [
        "input t",
        *["concat, negate"] * 1_499,
        "concat, negate x2",
        "output out",
    ]

    def chained(t: Any) -> dict[str, Any]:
        for number in range(2_000):
            t = t.negate() if number % 2 else t.drop()
        return {"out": t}

    drawing = drawn(chained, {"t": {"n": "int64"}})
    assert [box.title for box in drawing.boxes][1] == "select, negate, select, negate, ... (2,000 operators)"


def test_an_arrangement_that_several_operators_read_is_there_once() -> None:
    def program(t: Any) -> dict[str, Any]:
        return {"x": t.join(t.select("n", m="n + 1"), on="n"), "y": t.group_by("n").top_k(1, ["k"])}

    drawing = drawn(program, {"t": {"n": "int64", "k": "int64"}})
    (index,) = (item for item in drawing.indexes if item.box.title == "input t")
    assert index.key == ("n",) and [box.title for box in index.readers] == ["join on n", "top_k by n"]
    assert index.brief == "by n, shared by 2" and index.table.startswith("state/")
    assert len([edge for edge in drawing.edges if edge.index is index]) == 2


def test_every_stored_arrangement_is_in_the_diagram() -> None:
    plan = build(strongly_connected, EDGES)
    shown = [
        arrangement for arrangement in plan.arrangements if not (arrangement.transient or plan.is_inner(arrangement))
    ]
    assert {index.table for index in diagram(plan).indexes} == {f"state/{item.fingerprint}" for item in shown}
    assert len(shown) < len(plan.arrangements), "the trees of large groups are no operators of the program"


# -- SVG --------------------------------------------------------------------------------------------------------------

NAME = "{http://www.w3.org/2000/svg}"


def rectangle(element: Any) -> tuple[float, float, float, float]:
    """Left, top, right, bottom."""
    x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def apart(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def inside(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return b[0] <= a[0] and b[1] <= a[1] and a[2] <= b[2] and a[3] <= b[3]


class Picture:
    """An SVG file as a reader sees it."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)
        groups = [item for item in self.root.iter(f"{NAME}g") if (item.get("id") or "").startswith("box")]
        self.boxes = {int(group.get("id", "")[3:]): rectangle(group.find(f"{NAME}rect")) for group in groups}
        rects = [item for item in self.root.iter(f"{NAME}rect") if item.get("class") == "frame"]
        self.frames = {int(rect.get("id", "")[4:]): rectangle(rect) for rect in rects}
        self.edges = []
        for item in self.root.iter(f"{NAME}path"):
            title = item.findtext(f"{NAME}title")
            if title is not None:
                numbers = [float(number) for number in re.findall(r"-?\d+\.\d", item.get("d", ""))]
                source, _, target = title.partition(":")[0].partition(" to ")
                self.edges.append((int(source), int(target), numbers[:2], numbers[-2:]))


def test_boxes_and_loops_do_not_overlap(drawing: Diagram) -> None:
    picture = Picture(svg(drawing, "a program"))
    boxes, frames = list(picture.boxes.items()), list(picture.frames.items())
    assert len(boxes) == len(drawing.boxes) and len(frames) == len(drawing.frames)
    for number, (_, area) in enumerate(boxes):
        assert all(apart(area, other) for _, other in boxes[number + 1 :])
    parents = {frame.scope: frame.parent for frame in drawing.frames}
    for box in drawing.boxes:
        for scope, area in frames:
            within = _within(box.loop, scope, parents)
            assert (inside if within else apart)(picture.boxes[box.number], area)
    for scope, area in frames:
        for other, around_it in frames:
            if scope != other and _within(scope, other, parents):
                assert inside(area, around_it)
            elif scope != other and not _within(other, scope, parents):
                assert apart(area, around_it)


def _within(scope: int, outer: int, parents: dict[int, int]) -> bool:
    while scope not in (0, outer):
        scope = parents[scope]
    return scope == outer


def test_every_edge_ends_on_its_boxes(drawing: Diagram) -> None:
    picture = Picture(svg(drawing, "a program"))
    assert len(picture.edges) == len(drawing.edges)
    for source, target, (x, y), (u, v) in picture.edges:
        left, _, right, bottom = picture.boxes[source]
        assert left <= x <= right and abs(y - bottom) < 0.2, (source, target)
        left, top, right, _ = picture.boxes[target]
        assert left <= u <= right and abs(v - top) < 0.2, (source, target)


def test_everything_is_on_the_page(drawing: Diagram) -> None:
    picture = Picture(svg(drawing, "a program"))
    page = (0.0, 0.0, float(picture.root.get("width", "")), float(picture.root.get("height", "")))
    assert all(inside(area, page) for area in [*picture.boxes.values(), *picture.frames.values()])


def test_names_are_escaped_in_svg() -> None:
    text = svg(DRAWINGS["odd names"](), ODD)
    titles = [item.text or "" for item in ElementTree.fromstring(text).iter(f"{NAME}title")]
    assert 'a"]; end <b>&amp; \\x1b[1m\\n日本 |#%%{' in titles
    assert any('agg by a"]; end <b>&amp; \\x1b[1m\\n日本 |#%%{' in title for title in titles)
    assert text.isascii()


def test_an_svg_file_needs_nothing_else() -> None:
    """No scripts, links or fonts; every colour is defined for light pages and for dark ones."""
    text = svg(DRAWINGS["loops in a loop"](), "scc")
    assert not re.search(r"<script|<image|<use|href|@import|url\((?!#)", text)
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in text.split("@media (prefers-color-scheme: dark)"))
    assert light == dark == set(re.findall(r"var\((--\w+)\)", text))


# -- Mermaid ----------------------------------------------------------------------------------------------------------

LABEL = r'"(?P<label>(?:[A-Za-z0-9 .,:=_\-+/]|#\d+;|<br/>)+)"'
BOX = re.compile(rf"n(?P<number>\d+)(?:\[|\[\(|\(\[|\(\()(?:{LABEL})(?:\]|\)\]|\]\)|\)\))")
FRAME = re.compile(rf"subgraph loop(?P<scope>\d+)\[{LABEL}\]")
ARROW = re.compile(rf"n(?P<source>\d+) (?:-->|-- {LABEL} -->|-\. \"next round\" \.->) n(?P<target>\d+)")


def test_mermaid_is_well_formed(drawing: Diagram) -> None:
    head, *lines = mermaid(drawing).splitlines()
    assert head == "flowchart TB"
    open_: list[int] = []
    boxes: dict[int, int] = {}
    arrows = []
    for line in map(str.strip, lines):
        if line == "end":
            open_.pop()
        elif frame := FRAME.fullmatch(line):
            open_.append(int(frame["scope"]))
        elif box := BOX.fullmatch(line):
            boxes[int(box["number"])] = open_[-1] if open_ else 0
        elif arrow := ARROW.fullmatch(line):
            arrows.append((int(arrow["source"]), int(arrow["target"])))
        else:
            raise AssertionError(f"Mermaid cannot read {line!r}")
    assert not open_
    assert boxes == {box.number: box.loop for box in drawing.boxes}
    assert arrows == [(edge.source.number, edge.target.number) for edge in drawing.edges]


# -- size -------------------------------------------------------------------------------------------------------------


def test_thousands_of_operators() -> None:
    """A chain that reads one collection again and again, with an output at every step."""

    def program(t: Any, u: Any) -> dict[str, Any]:
        outputs = {}
        for number in range(400):
            t = t.join(u, on="n").negate().distinct(allow_negative=True)
            outputs[f"out{number}"] = t
        return outputs

    drawing = drawn(program, {"t": {"n": "int64", "m": "int64"}, "u": {"n": "int64"}})
    picture = Picture(svg(drawing, "large"))
    assert len(picture.boxes) == len(drawing.boxes) == 1_602
    assert len(mermaid(drawing).splitlines()) == 1 + len(drawing.boxes) + len(drawing.edges)


ALL_EXAMPLES = sorted(Path(__file__).resolve().parent.parent.glob("examples/*/dd.toml"))
EXAMPLES = [file for file in ALL_EXAMPLES if file.parent.name != "dbt"]  # its program is there once dbt has compiled it


@pytest.mark.parametrize("file", EXAMPLES, ids=[file.parent.name for file in EXAMPLES])
def test_examples(file: Path) -> None:
    from ddcore.io.project.finding import find_project
    from ddcore.io.project.program import load_plan

    drawing = diagram(load_plan(find_project(file.parent)))
    assert Picture(svg(drawing, file.parent.name)).boxes.keys() == {box.number for box in drawing.boxes}


def test_join_between_says_what_rows_are_found_by() -> None:
    def program(t: Any) -> Any:
        ends = t.select("k", end="n")
        return {"x": t.join_between(ends, "n", "end"), "y": t.join_between(ends, "n", "end", on="k")}

    titles = {box.title for box in diagram(build(program, {"t": {"n": "int64", "k": "int64"}})).boxes}
    assert {"join_between by n", "join_between on k"} <= titles
