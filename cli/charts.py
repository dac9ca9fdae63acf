"""Charts as SVG inside of a page: a heat map, a curve, bars, and the share of a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ddcore.cli.page import Html, tag
from ddcore.cli.text import count

_WIDTH, _HEIGHT = 440.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 14.0, 12.0, 28.0
_MOST = 400  # points of a curve


def short(value: float) -> str:
    """A number for an axis: ``950``, ``1.2k``, ``3.4M``."""
    for unit in ("", "k", "M", "G"):
        if abs(value) < 1000 or unit == "G":
            text = f"{value:.1f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
            return f"{text}{unit}"
        value /= 1000
    raise AssertionError("unreachable")


def share(part: float) -> Html:
    """A bar of the part of a whole, 0 to 1."""
    width = 100 * max(0.0, min(1.0, part))
    return tag(
        "svg",
        tag("rect", class_="back", width=100, height=10, rx=3),
        tag("rect", class_="bar", width=width, height=10, rx=3),
        class_="meter", viewBox="0 0 100 10", preserveAspectRatio="none", role="img", aria_label=f"{part:.0%}",
    )  # fmt: skip


def curve(title: str, points: Sequence[tuple[str, int]]) -> Html:
    """A value that stays until the next point: names of the points and values. Of very many, some are left out.

    Names that are numbers have their distances.
    """
    every = -(-len(points) // _MOST)
    shown = [*points[::every], *points[-1:]] if every > 1 else list(points)
    least, most = min(0, *(value for _, value in shown)), max(1, *(value for _, value in shown))
    numbers = [int(name) for name, _ in shown] if all(name.isdigit() for name, _ in shown) else list(range(len(shown)))
    wide = max(1, numbers[-1] - numbers[0])
    across = [_LEFT + (_WIDTH - _LEFT - _RIGHT) * (number - numbers[0]) / wide for number in numbers]

    def height(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - least) / (most - least))

    corners = [(across[0], height(shown[0][1]))]
    for x, (_, value) in zip(across[1:], shown[1:], strict=True):
        corners += [(x, corners[-1][1]), (x, height(value))]
    line = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
    radius = 3.0 if len(shown) < 60 else 1.5
    marks = [
        tag("circle", tag("title", f"{name}: {count(value)}"), class_="dot", cx=x, cy=height(value), r=radius)
        for (name, value), x in zip(shown, across, strict=True)
    ]
    ends = f"L{corners[-1][0]:.1f} {height(0):.1f} L{corners[0][0]:.1f} {height(0):.1f} Z"
    return _chart(
        title,
        *_rules(least, most, height),
        tag("path", class_="area", d=f"{line} {ends}"),
        tag("path", class_="series", d=line),
        *marks,
        *_names([name for name, _ in shown], across),
    )


def bars(title: str, values: Sequence[tuple[str, int]]) -> Html:
    """One bar for each name."""
    most = max(1, *(value for _, value in values))
    step = (_WIDTH - _LEFT - _RIGHT) / len(values)
    width = min(60.0, 0.7 * step)

    def top(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / most)

    middles = [_LEFT + step * (index + 0.5) for index in range(len(values))]
    drawn = [
        tag(
            "rect", tag("title", f"{name}: {count(value)}"), class_="bar", x=x - width / 2, y=top(value), width=width,
            height=top(0) - top(value), rx=2,
        )
        for (name, value), x in zip(values, middles, strict=True)
    ]  # fmt: skip
    return _chart(title, *_rules(0, most, top), *drawn, *_names([name for name, _ in values], middles))


def heat_map(title: str, versions: Sequence[str], rounds: Sequence[str], cells: dict[tuple[int, int], int]) -> Html:
    """Numbers by version (across) and round (down), stronger for more; ``cells`` by the places of their names."""
    width = max(10.0, min(44.0, 640.0 / max(1, len(versions))))
    height, left, top = 22.0, 90.0, 24.0
    most = max(cells.values(), default=1)
    drawn = []
    for (v, r), number in sorted(cells.items()):
        strength = 0.12 + 0.88 * (math.log1p(number) / math.log1p(most))
        told = f"version {versions[v]}, {_round(rounds[r])}: {count(number)} differences"
        drawn.append(
            tag(
                "rect", tag("title", told), x=left + v * width, y=top + r * height, width=width - 1.5,
                height=height - 1.5, rx=2, fill_opacity=f"{strength:.2f}",
            )
        )  # fmt: skip
    back = tag("rect", class_="none", x=left, y=top, width=len(versions) * width, height=len(rounds) * height)
    every = _every(len(versions), width, max(map(len, versions), default=1))
    across = [
        tag("text", name, x=left + (position + 0.5) * width, y=top - 8, text_anchor="middle")
        for position, name in enumerate(versions)
        if position % every == 0
    ]
    down = [
        tag("text", _round(name), x=left - 8, y=top + (position + 0.68) * height, text_anchor="end")
        for position, name in enumerate(rounds)
    ]
    whole = left + len(versions) * width + 12, top + len(rounds) * height + 6
    return tag(
        "svg", tag("title", title), back, *drawn, *across, *down, class_="chart heat", role="img",
        viewBox=f"0 0 {whole[0]:.0f} {whole[1]:.0f}", style=f"width:{whole[0]:.0f}px;max-width:none",
    )  # fmt: skip


def _round(name: str) -> str:
    return f"round {name}" if name[:1].isdigit() else name


def _chart(title: str, *parts: Html) -> Html:
    return tag(
        "svg", tag("title", title), *parts, class_="chart", role="img", viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    )


def _rules(least: float, most: float, position: Callable[[float], float]) -> list[Html]:
    """Horizontal lines at round values, with the values."""
    raw = (most - least) / 4
    unit = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1
    step = max(1.0, next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw))
    parts = []
    value = math.ceil(least / step) * step
    while value <= most:
        y = position(value)
        parts.append(tag("line", class_="grid" if value else "axis", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y))
        parts.append(tag("text", short(value), x=_LEFT - 6, y=y + 4, text_anchor="end"))
        value += step
    return parts


def _names(names: Sequence[str], positions: Sequence[float]) -> list[Html]:
    """Names under an axis; those that would touch the one before are left out."""
    shown, free = [], -_WIDTH
    for name, position in zip(names, positions, strict=True):
        half = 3.6 * len(name) + 4
        if position - half >= free:
            shown.append(tag("text", name, x=position, y=_HEIGHT - 8, text_anchor="middle"))
            free = position + half
    return shown


def _every(number: int, width: float, longest: int) -> int:
    """Of how many names one is shown, so that they do not touch."""
    return max(1, -(-int(longest * 7 + 10) // max(1, int(width)))) if number > 1 else 1
