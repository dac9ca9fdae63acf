"""Options that several commands share, so that they are spelt and explained once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from ddcore.io.project import Project

__all__ = [
    "DebugOption",
    "EngineOption",
    "JsonOption",
    "LimitOption",
    "MasterOption",
    "ProjectOption",
    "QuietOption",
    "SkipCodeOption",
    "VersionCommand",
    "WarehouseOption",
    "WidthOption",
    "open_project",
    "whole_number",
]


def whole_number(least: int, greatest: int = 2**63 - 2) -> Callable[[str], int]:
    """A parser for whole numbers in a range, whose complaint has the value in it."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", text) or not least <= int(text) <= greatest:
            span = f"from {least} up" if greatest > 2**32 else f"from {least} to {greatest}"
            raise typer.BadParameter(f"{text!r} is not a whole number {span}")
        return int(text)

    return parse


ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="The project's folder. Default: DDCORE_PROJECT, else the nearest folder upwards that has a dd.toml.",
        show_default=False,
    ),
]
WarehouseOption = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        metavar="DIR",
        help="The warehouse's folder, instead of DDCORE_WAREHOUSE and dd.toml's.",
        show_default=False,
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="spark|inline",
        help="Do the work on Spark, or in this process without a JVM. Same tables, same rows. Default: spark.",
        show_default=False,
    ),
]
WidthOption = Annotated[
    int | None,
    typer.Option(
        "--width",
        parser=whole_number(1),
        metavar="P",
        help="How many workers. Default: as the work asks for.",
        show_default=False,
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master, any cluster's, instead of DDCORE_MASTER and dd.toml's. Default: local[*].",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON lines on stdout.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing at all on success.")]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        parser=whole_number(0),
        metavar="N",
        help="At most N rows; 0 for all. Default: 100 on a terminal, else all.",
        show_default=False,
    ),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Tracebacks, and what Spark and Ivy have to say. Also DDCORE_DEBUG=1.")
]
SkipCodeOption = Annotated[
    int | None,
    typer.Option(
        "--skip-code",
        parser=whole_number(0, 255),
        metavar="N",
        help="Exit with N when there is nothing to do (Airflow's skip is 99). Default: 0.",
        show_default=False,
    ),
]


def open_project(project: Path | None, **flags: str | int | None) -> Project:
    """The project that the flags, the environment and the working folder name; UsageError when there is none."""
    from ddcore.io.project import find_project

    found = find_project(project, flags=flags)
    _ = found.dim  # raises where there are several time dimensions: at once, not half-way
    return found


class VersionCommand(TyperCommand):
    """A command whose arguments may be negative offsets: ``dd diff dists -2 latest``.

    The parser takes ``-2`` for an option. Spelt ``latest-2`` it says the same, so that is what the parser is given.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``args`` with each negative offset spelt out, then parsed as ever."""
        with_value = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        spelt = []
        for before, word in zip(["", *args], args, strict=False):
            offset = re.fullmatch(r"-\d+(\.\..*)?", word) and before not in with_value
            spelt.append(f"latest{word}" if offset else word)
        return super().parse_args(ctx, spelt)
