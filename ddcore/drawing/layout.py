"""Where the boxes of a diagram go: in layers, readers below what they read, loops as frames around theirs.

Each loop is laid out by itself, innermost first, and is one item in the loop around it. So boxes and frames cannot
overlap. An edge goes through all levels between its two boxes: through gaps that it gets in the layers between, and
through one point of each frame's border. Feedback goes up along the right side of its loop.

Cost: O(n log n) in the boxes and gaps. Gaps are limited in number: in a very large diagram long edges pass over boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ddcore.drawing.diagram import Box, Diagram, Edge, Frame

Point = tuple[float, float]
Size = tuple[float, float]

_APART = 24.0  # between two items of a layer
_GAP = 8.0  # the width of a gap for an edge
_CHANNEL = 44.0  # between two layers
_PADDING = 16.0  # inside of a frame
_TITLE = 22.0  # the height of a frame's title
_LANE = 12.0  # between two lanes for feedback
_STRAIGHT = 0.05  # less than a drawing shows
_SWEEPS = 4
_MOST_GAPS = 50_000


@dataclass(frozen=True)
class Rectangle:
    """Left, top, width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass
class Layout:
    """Rectangles of boxes and of frames (by scope), and the points of each edge, from box to box."""

    width: float
    height: float
    boxes: dict[Box, Rectangle] = field(default_factory=dict)
    frames: dict[int, Rectangle] = field(default_factory=dict)
    paths: dict[Edge, list[Point]] = field(default_factory=dict)


@dataclass(eq=False)
class _Item:
    """A box or a frame at one level, or a gap for the edges of ``net``. Positions are relative to the level."""

    width: float
    height: float
    layer: int = 0
    x: float = 0.0  # the centre
    box: Box | None = None
    level: _Level | None = None  # the inside of a frame
    above: list[_Item] = field(default_factory=list)
    below: list[_Item] = field(default_factory=list)


@dataclass(eq=False)
class _Net:
    """The edges of one source at one level: from an item, or from the top border, to items and the bottom border."""

    start: _Item | None
    targets: dict[_Item, None] = field(default_factory=dict)
    leaves: bool = False
    gaps: list[_Item] = field(default_factory=list)  # one for each layer after the start's


@dataclass(eq=False)
class _Level:
    """The inside of a loop, or of the program."""

    frame: Frame | None
    items: list[_Item] = field(default_factory=list)
    nets: dict[Box, _Net] = field(default_factory=dict)
    feedback: list[tuple[Edge, _Item, _Item]] = field(default_factory=list)
    layers: list[list[_Item]] = field(default_factory=list)
    tops: list[float] = field(default_factory=list)
    bottoms: list[float] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0
    left: float = 0.0  # of the level, once it is placed
    top: float = 0.0


def layout(drawing: Diagram, boxes: Mapping[Box, Size], titles: Mapping[int, float]) -> Layout:
    """Places for all boxes of a diagram, of these sizes, and for frames with titles of these widths (by scope)."""
    return _Placer(drawing, boxes, titles).layout()


class _Placer:
    def __init__(self, drawing: Diagram, sizes: Mapping[Box, Size], titles: Mapping[int, float]) -> None:
        self.drawing, self.titles = drawing, titles
        self.frames = {frame.scope: frame for frame in drawing.frames}
        self.levels = {0: _Level(None)} | {scope: _Level(frame) for scope, frame in self.frames.items()}
        self.items: dict[Box | int, _Item] = {}
        for box in drawing.boxes:
            self.items[box] = _Item(*sizes[box], box=box)
            self._hold(box.loop, self.items[box])
        self.gaps = 0

    def _hold(self, scope: int, item: _Item) -> None:
        """Put an item on its level, and the level's frame on the one around before it."""
        if scope and scope not in self.items:
            self.items[scope] = _Item(0, 0, level=self.levels[scope])
            self._hold(self.frames[scope].parent, self.items[scope])
        self.levels[scope].items.append(item)

    def layout(self) -> Layout:
        for edge in self.drawing.edges:
            self._connect(edge)
        inner = sorted(self.frames, key=lambda scope: -len(self._around(scope)))
        for scope in [*inner, 0]:
            self._arrange(self.levels[scope])
            if scope:
                level, item = self.levels[scope], self.items[scope]
                item.width, item.height = max(level.width, self.titles[scope] + 2 * _PADDING), level.height
        whole = self.levels[0]
        result = Layout(whole.width, whole.height)
        self._fix(whole, 0.0, 0.0, result)
        for edge in self.drawing.edges:
            result.paths[edge] = self._path(edge)
        return result

    # -- levels -------------------------------------------------------------------------------------------------------

    def _around(self, scope: int) -> list[int]:
        """The scope and those around it, outwards; the program's is the last."""
        scopes = [scope]
        while scopes[-1]:
            scopes.append(self.frames[scopes[-1]].parent)
        return scopes

    def _ways(self, edge: Edge) -> tuple[list[int], int, list[int]]:
        """The scopes that an edge leaves, the one in which it stays, and those that it enters, outermost first."""
        out, into = self._around(edge.source.loop), self._around(edge.target.loop)
        while out and into and out[-1] == into[-1]:
            common = out.pop()
            into.pop()
        return out, common, into[::-1]

    def _first(self, into: Sequence[int], edge: Edge) -> _Item:
        """The item at which an edge ends on the level in which it stays."""
        return self.items[into[0]] if into else self.items[edge.target]

    def _connect(self, edge: Edge) -> None:
        out, common, into = self._ways(edge)
        item = self.items[edge.source]
        for scope in out:
            self.levels[scope].nets.setdefault(edge.source, _Net(item)).leaves = True
            item = self.items[scope]
        target = self._first(into, edge)
        if edge.feedback and not into and common == edge.target.loop:
            self.levels[common].feedback.append((edge, item, target))
            return
        self.levels[common].nets.setdefault(edge.source, _Net(item)).targets[target] = None
        for scope, inner in _entered(into, edge):
            self.levels[scope].nets.setdefault(edge.source, _Net(None)).targets[self.items[inner]] = None

    def _arrange(self, level: _Level) -> None:
        """Layers, orders and positions of a level whose inner levels are arranged."""
        for item in level.items:  # in the order of the boxes: readers come after what they read
            item.layer = 0
        users: dict[_Item, list[_Item]] = {}
        for net in level.nets.values():
            if net.start is not None:
                users.setdefault(net.start, []).extend(net.targets)
        for item in level.items:
            for user in users.get(item, ()):
                user.layer = max(user.layer, item.layer + 1)
        level.layers = [[] for _ in range(max((item.layer for item in level.items), default=-1) + 1)]
        for item in level.items:
            level.layers[item.layer].append(item)
        for net in level.nets.values():
            self._make_gaps(level, net)
        self._order(level)
        self._align(level)
        self._measure(level)

    def _make_gaps(self, level: _Level, net: _Net) -> None:
        first = 0 if net.start is None else net.start.layer + 1
        last = len(level.layers) if net.leaves else max((item.layer for item in net.targets), default=first)
        before = net.start
        if self.gaps + last - first > _MOST_GAPS:
            last = first
        self.gaps += last - first
        for layer in range(first, last):
            gap = _Item(_GAP, 0, layer)
            net.gaps.append(gap)
            level.layers[layer].append(gap)
            _join(before, gap)
            before = gap
        for item in net.targets:
            position = item.layer - first - 1
            _join(net.gaps[position] if 0 <= position < len(net.gaps) else net.start if position < 0 else None, item)

    def _order(self, level: _Level) -> None:
        """Orders the items of each layer by the mean place of their neighbours, downwards and upwards in turn."""
        position = {item: float(number) for layer in level.layers for number, item in enumerate(layer)}
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for layer in level.layers if down else level.layers[::-1]:
                keys = {}
                for item in layer:
                    near = item.above if down else item.below
                    keys[item] = sum(position[neighbour] for neighbour in near) / len(near) if near else position[item]
                layer.sort(key=keys.__getitem__)
                position.update((item, float(number)) for number, item in enumerate(layer))

    def _align(self, level: _Level) -> None:
        """Moves items towards their neighbours, without changing their order."""
        for layer in level.layers:
            _spread(layer, [0.0] * len(layer))
        for sweep in range(_SWEEPS + 1):
            down = sweep % 2 == 0
            for layer in level.layers if down else level.layers[::-1]:
                wanted = []
                for item in layer:
                    near = item.above if down else item.below
                    wanted.append(sum(neighbour.x for neighbour in near) / len(near) if near else item.x)
                _spread(layer, wanted)

    def _measure(self, level: _Level) -> None:
        items = [item for layer in level.layers for item in layer]
        left = min((item.x - item.width / 2 for item in items), default=0.0) - _PADDING
        for item in items:
            item.x -= left
        level.width = max((item.x + item.width / 2 for item in items), default=0.0) + _PADDING
        level.width += _LANE * (len(level.feedback) + 1) if level.feedback else 0
        top = _PADDING if level.frame is None else _TITLE + _CHANNEL / 2
        for layer in level.layers:
            level.tops.append(top)
            level.bottoms.append(top + max(item.height for item in layer))
            top = level.bottoms[-1] + _CHANNEL
        level.height = (level.bottoms[-1] if level.bottoms else top) + (_CHANNEL / 2 if level.frame else _PADDING)

    def _fix(self, level: _Level, left: float, top: float, result: Layout) -> None:
        """Absolute places, from the outside inwards."""
        level.left, level.top = left, top
        for item in level.items:
            x, y = left + item.x - item.width / 2, top + level.tops[item.layer]
            rectangle = Rectangle(x, y, item.width, item.height)
            if item.box is not None:
                result.boxes[item.box] = rectangle
            elif item.level is not None and item.level.frame is not None:
                result.frames[item.level.frame.scope] = rectangle
                self._fix(item.level, x, y, result)

    # -- edges --------------------------------------------------------------------------------------------------------

    def _path(self, edge: Edge) -> list[Point]:
        out, common, into = self._ways(edge)
        points: list[Point] = []
        for scope in out:
            points += self._through(self.levels[scope], edge, None)
        level = self.levels[common]
        lane = next((number for number, (back, _, _) in enumerate(level.feedback) if back is edge), None)
        if lane is not None:
            return _tidy(points + self._return(level, edge, lane))
        points += self._through(level, edge, self._first(into, edge))
        for scope, inner in _entered(into, edge):
            points += self._through(self.levels[scope], edge, self.items[inner])
        return _tidy(points)

    def _through(self, level: _Level, edge: Edge, target: _Item | None) -> list[Point]:
        """The points of an edge at one level; without a target it goes to the bottom border."""
        net = level.nets[edge.source]
        points = [] if net.start is None else self._down(level, net.start, edge.source)
        first = 0 if net.start is None else net.start.layer + 1
        last = len(level.layers) if target is None else target.layer
        if net.start is None:
            points.append((self._entry(level, edge.source), level.top))
            points.append((points[-1][0], level.top + _TITLE))
        for gap in net.gaps[: max(0, last - first)]:
            x = level.left + gap.x
            points += [(x, level.top + level.tops[gap.layer]), (x, level.top + level.bottoms[gap.layer])]
        if target is None:
            points.append((points[-1][0], level.top + level.height))
        else:
            points.append((self._above(level, target, edge.source), level.top + level.tops[target.layer]))
        return points

    def _down(self, level: _Level, item: _Item, source: Box) -> list[Point]:
        """From the bottom of an item to the bottom of its layer."""
        x = level.left + item.x
        if item.level is not None:
            x = self._exit(item.level, source)
        y = level.top + level.tops[item.layer] + item.height
        return [(x, y), (x, level.top + level.bottoms[item.layer])]

    def _exit(self, level: _Level, source: Box) -> float:
        """Where edges of a source cross the bottom border of a level."""
        net = level.nets[source]
        if net.gaps and net.leaves and net.gaps[-1].layer == len(level.layers) - 1:
            return level.left + net.gaps[-1].x
        assert net.start is not None
        return self._down(level, net.start, source)[0][0]

    def _entry(self, level: _Level, source: Box) -> float:
        """Where edges of a source cross the top border of a level."""
        net = level.nets[source]
        if net.gaps:
            return level.left + net.gaps[0].x
        return level.left + sum(item.x for item in net.targets) / len(net.targets)

    def _above(self, level: _Level, item: _Item, source: Box) -> float:
        """Where edges of a source meet the top of an item."""
        return level.left + item.x if item.level is None else self._entry(item.level, source)

    def _return(self, level: _Level, edge: Edge, lane: int) -> list[Point]:
        """Down into the channel below, along a lane on the right, and into the target from above."""
        _, start, target = level.feedback[lane]
        points = self._down(level, start, edge.source)
        x = level.left + level.width - _PADDING / 2 - _LANE * (lane + 1)
        low = points[-1][1] + 6 + 2 * (lane % 4)
        high = level.top + level.tops[target.layer] - 6 - 2 * (lane % 4)
        end = level.left + target.x + target.width / 4
        points += [(points[-1][0], low), (x, low), (x, high), (end, high)]
        return [*points, (end, level.top + level.tops[target.layer])]


def _entered(into: Sequence[int], edge: Edge) -> Iterator[tuple[int, Box | int]]:
    """The scopes that an edge enters, each with what it leads to there."""
    inner: list[Box | int] = [*into[1:], edge.target]
    return zip(into, inner, strict=False)


def _join(above: _Item | None, below: _Item) -> None:
    if above is not None:
        above.below.append(below)
        below.above.append(above)


def _spread(layer: Sequence[_Item], wanted: Sequence[float]) -> None:
    """The positions nearest to the wanted ones, in squares, at which the items keep their order and do not overlap.

    Neighbours that would overlap are pooled and share their mean: O(n).
    """
    offsets, offset = [0.0], 0.0
    for left, right in pairwise(layer):
        offset += (left.width + right.width) / 2 + _APART
        offsets.append(offset)
    pools: list[tuple[float, int]] = []  # sums and numbers of items
    for position, goal in enumerate(wanted):
        total, number = goal - offsets[position], 1
        while pools and pools[-1][0] / pools[-1][1] >= total / number:
            before, several = pools.pop()
            total, number = total + before, number + several
        pools.append((total, number))
    position = 0
    for total, number in pools:
        for item in layer[position : position + number]:
            item.x = total / number + offsets[position]
            position += 1


def _tidy(points: Sequence[Point]) -> list[Point]:
    """The points without those on a vertical line between their neighbours."""
    kept = list(points[:1])
    for here, after in pairwise(points[1:]):
        if not abs(kept[-1][0] - here[0]) < _STRAIGHT > abs(here[0] - after[0]):
            kept.append(here)
    return kept + list(points[-1:])
