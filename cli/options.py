"""Options that several commands share, so that each is named and explained once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ddcore.cli.completion import one_of, output_names

if TYPE_CHECKING:
    from ddcore.io.project.project import Project

__all__ = [
    "ON_TERMINAL",
    "Command",
    "DebugOption",
    "EngineOption",
    "Group",
    "JsonOption",
    "LimitOption",
    "MasterOption",
    "MemoryOption",
    "OutputArgument",
    "ParallelismOption",
    "ProjectOption",
    "QuietOption",
    "SkipCodeOption",
    "VersionCommand",
    "VerticalOption",
    "WarehouseOption",
    "WhereOption",
    "argument",
    "flag",
    "open_project",
    "option",
    "whole_number",
]


def filled(text: Any) -> str:
    """The text of a name or a path. An empty one is refused: it is mostly a shell variable that is not set."""
    if not str(text).strip():
        raise typer.BadParameter("the value is empty: is a variable not set?")
    return str(text)


def whole_number(least: int, greatest: int = 2**63 - 2) -> Callable[[str], int]:
    """A parser for whole numbers in a range; its error names the value."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", text) or not least <= int(text) <= greatest:
            span = f"from {least} up" if greatest > 2**32 else f"from {least} to {greatest}"
            raise typer.BadParameter(f"{text!r} is not a whole number {span}")
        return int(text)

    return parse


def flag(help: str, *names: str) -> Any:
    """The default of a parameter that is an option without a value; without names it is called as the parameter."""
    return typer.Option(False, *names, help=help)


def option(
    metavar: str,
    help: str,
    parser: Callable[[Any], Any] | None = None,
    *,
    names: Sequence[str] = (),
    default: Any = None,
    complete: Any = None,
) -> Any:
    """The default of a parameter that is an option with a value: text or a path, unless a parser makes it another."""
    return typer.Option(default, *names, metavar=metavar, help=help, parser=parser, autocompletion=complete)


def argument(
    metavar: str, help: str, parser: Callable[[Any], Any] | None = None, *, default: Any = None, complete: Any = None
) -> Any:
    """The default of a parameter that is an argument; ``...`` for one that must be there."""
    how = {"metavar": metavar, "help": help, "parser": parser, "autocompletion": complete}
    return typer.Argument(default, show_default=False, **how)


ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="The project's folder. Default: DDCORE_PROJECT, else the nearest folder upwards that has a dd.toml.",
    ),
]
WarehouseOption = Annotated[
    str | None,
    typer.Option(
        "--warehouse", metavar="DIR", help="The warehouse's folder, instead of DDCORE_WAREHOUSE and dd.toml's."
    ),
]
OutputArgument = Annotated[
    str, typer.Argument(metavar="OUTPUT", help="The output's name.", autocompletion=output_names)
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        autocompletion=one_of("inline", "spark"),
        metavar="spark|inline",
        help="Do the work on Spark, or in this process without a JVM. Same tables, same rows. Default: spark.",
    ),
]
ParallelismOption = Annotated[
    int | None,
    typer.Option(
        "--parallelism",
        parser=whole_number(1),
        metavar="P",
        help="How many workers. Default: one for small runs, one per core for large ones.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="What each process that folds should stay below, such as 2GiB: a larger window is folded in several runs, "
        "and the rest is spilled to temporary files. Default: no limit.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master, any cluster's or sc://HOST:PORT, instead of DDCORE_MASTER and dd.toml's. Default: "
        "local[*].",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON lines on stdout; values are never cut.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing on success.")]
ON_TERMINAL = 100  # rows that a terminal shows unless --limit says otherwise


def limit_option(text: str) -> Any:
    """``--limit N`` with its help."""
    return typer.Option("--limit", parser=whole_number(0), metavar="N", help=text)


LimitOption = Annotated[
    int | None, limit_option(f"At most N rows; 0 for all. Default: {ON_TERMINAL} on a terminal, else all.")
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Only rows that meet this condition, in SQL as in programs: \"town = 'Ashby' AND distance > 3\".",
    ),
]
VerticalOption = Annotated[
    bool,
    typer.Option("--vertical", help="One line per column. Default: only where a table is too wide for the terminal."),
]
OrBeforeOption = Annotated[
    bool,
    typer.Option(
        "--or-before",
        help="The newest version before, where that day, time or version never came. Default: an error.",
    ),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks, and the messages of Spark and Ivy. Also DDCORE_DEBUG=1.")
]
SkipCodeOption = Annotated[
    int | None,
    typer.Option(
        "--skip-code",
        parser=whole_number(0, 255),
        metavar="N",
        help="Exit with N when there is nothing to do (Airflow's skip is 99). Default: 0.",
    ),
]


def open_project(project: Path | None, **flags: str | int | None) -> Project:
    """The project that the flags, the environment and the working folder name; UsageError when there is none."""
    from ddcore.io.reading.opening import project_at

    return project_at(project, flags)


class Command(TyperCommand):
    """A command that reads its parameters by our parsers alone.

    typer calls them through pydantic, and importing that takes longer than all else that a command imports but Polars.
    A flag has no opposite, ``--no-...``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            param.secondary_opts = []

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args`` without pydantic."""
        return super().parse_args(_read_directly(self, ctx), args)


class Group(TyperGroup):
    """The commands together, with the options before them, which are read in the same way."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args`` without pydantic."""
        return super().parse_args(_read_directly(self, ctx), args)


def _read_directly(command: TyperCommand | TyperGroup, context: Any) -> Any:
    for param in command.get_params(context):
        if "process_value" not in vars(param):
            vars(param)["process_value"] = partial(_processed, param, param.process_value)
    return context


_PARSERS: dict[Any, Callable[[Any], Any]] = {str: filled, list[str]: filled, Path: lambda path: Path(filled(path))}
"""Of parameters that name no parser, by their types."""


def _processed(param: Any, by_typer: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """The value of a parameter, as typer's ``process_value`` returns it."""
    descriptor, several = param.type_descriptor, param.multiple or param.nargs == -1
    parser: Callable[[Any], Any] | None = descriptor.parameter_info.parser
    parser = parser or _PARSERS.get(descriptor.annotation)
    if value is None and not param.required:
        value = () if several else None
    elif parser is None or value in (None, ()):
        return by_typer(context, value)
    else:
        value = [parser(each) for each in value] if several else parser(value)
    return value if param.callback is None else param.callback(context, param, value)


class VersionCommand(Command):
    """A command whose arguments may be negative offsets: ``dd diff dists -2 latest``.

    The parser takes ``-2`` for an option, so it gets ``latest-2``, which means the same.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args`` after each negative offset is written as ``latest-N``."""
        with_value = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        words = []
        for before, word in zip(["", *args], args, strict=False):
            offset = re.fullmatch(r"-[0-9]+(\.\..*)?", word) and before not in with_value
            words.append(f"latest{word}" if offset else word)
        return super().parse_args(ctx, words)
