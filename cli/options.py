"""Options that several commands share, so that each is named and explained once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial, update_wrapper
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from ddcore.cli.completion import branch_names, one_of, output_names
from ddcore.cli.output import Output

if TYPE_CHECKING:
    from ddcore.io.project.project import Project


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


def positive(unit: str) -> Callable[[str], float]:
    """A parser for numbers above 0; its error names the value."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) or not float(text):
            raise typer.BadParameter(f"{text!r} is not a number of {unit} above 0")
        return float(text)

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


OUTPUT: Any = argument("OUTPUT", "The output's name.", default=..., complete=output_names)
ON_TERMINAL = 100  # rows that a terminal shows unless --limit says otherwise
LIMIT: Any = option("N", f"At most N rows; 0 for all. Default: {ON_TERMINAL} on a terminal, else all.", whole_number(0))
WHERE: Any = option(
    "SQL", "Only rows that meet this condition, in SQL as in programs: \"town = 'Ashby' AND distance > 3\"."
)
VERTICAL: Any = flag("One line per column. Default: only where a table is too wide for the terminal.")
OR_BEFORE: Any = flag("The newest version before, where that day, time or version never came. Default: an error.")


def open_project(project: Path | None, **flags: str | int | None) -> Project:
    """The project that the flags, the environment and the working folder name; UsageError when there is none."""
    from ddcore.io.reading.opening import project_at

    return project_at(project, flags)


class Call(NamedTuple):
    """What the options that commands share say: where a command writes, its project, and the project's engine."""

    as_json: bool = False
    quiet: bool = False
    project: Path | None = None
    warehouse: str | None = None
    branch: str | None = None
    engine: str | None = None
    master: str | None = None
    parallelism: int | None = None

    @property
    def output(self) -> Output:
        """Where the command writes."""
        return Output(json=self.as_json, quiet=self.quiet)

    def opened(self, **more: str | int | None) -> Project:
        """The project, with more settings; UsageError when there is none."""
        flags = {"engine": self.engine, "spark_master": self.master, "parallelism": self.parallelism, **more}
        return open_project(self.project, warehouse=self.warehouse, branch=self.branch, **flags)

    def other(self, branch: str) -> Project:
        """The project on another branch of its warehouse."""
        return self._replace(branch=branch).opened()


_SHARED: dict[str, dict[str, tuple[Any, Any]]] = {
    "engine": {
        "engine": (str | None, option(
            "spark|inline",
            "Do the work on Spark, or in this process without a JVM. Same tables, same rows. Default: spark.",
            complete=one_of("inline", "spark"),
        )),
    },
    "master": {
        "master": (str | None, option(
            "URL",
            "Spark's master, any cluster's or sc://HOST:PORT, instead of DDCORE_MASTER and dd.toml's. Default: "
            "local[*].",
        )),
    },
    "parallelism": {
        "parallelism": (int | None, option(
            "P", "How many workers, at most. Default: as many as pay, by what earlier runs took.", whole_number(1)
        )),
    },
    "json": {"as_json": (bool, flag("Print JSON lines on stdout; values are never cut.", "--json"))},
    "quiet": {"quiet": (bool, flag("Print nothing on success.", "--quiet", "-q"))},
    "project": {
        "project": (Path | None, option(
            "DIR", "The project's folder. Default: DDCORE_PROJECT, else the nearest folder upwards that has a dd.toml."
        )),
        "warehouse": (str | None, option("DIR", "The warehouse's folder, instead of DDCORE_WAREHOUSE and dd.toml's.")),
        "branch": (str | None, option(
            "NAME",
            "A branch of the warehouse, instead of DDCORE_BRANCH's; main is the warehouse itself.",
            complete=branch_names,
        )),
    },
    "debug": {"debug": (bool, flag("Show tracebacks, and the messages of Spark and Ivy. Also DDCORE_DEBUG=1."))},
}  # fmt: skip
"""The types and the defaults of the parameters, by the word for them."""
SKIP_CODE: Any = option(
    "N", "Exit with N when there is nothing to do (Airflow's skip is 99). Default: 0.", whole_number(0, 255)
)

LATE: Any = option(
    "refuse|move|restate",
    "Rows at folded versions: refuse all, move to the next version, or keep their own; the next run then folds again "
    "from there. --undo N --late restate also undoes ingests that are folded. Default: refuse.",
    complete=one_of("refuse", "move", "restate"),
)
LABEL: Any = option(
    "TEXT",
    "What to call the version of the rows, which must be one: commands then take TEXT for it. With several time "
    "dimensions: day=TEXT. May be repeated.",
)
MEMORY: Any = option(
    "SIZE",
    "What each process that folds should stay below, such as 2GiB: a larger window is folded in several runs, and the "
    "rest is spilled to temporary files. Default: no limit.",
)
SELECT: Any = option(
    "OUTPUTS",
    "These outputs alone: gold_sales, gold_*, +gold_sales (with those it is computed from), gold_sales+ (with those "
    "computed from it), orders+ (those that read the input), tag:hourly. May be repeated.",
    str,
    complete=output_names,
)
VERIFY_EVERY: Any = option(
    "N",
    "Then verify the outputs, as verify does, at each version folded that N divides; with several time dimensions, "
    "where N divides the run's number. 0: not at all. Default: dd.toml's, else 0.",
    whole_number(0),
)


class _Shared:
    """A command as typer sees it: the function's own options, then those that fill its :class:`Call`."""

    def __init__(self, function: Callable[..., int], words: str) -> None:
        update_wrapper(self, function)
        self._function, self._words, self.__annotations__ = function, [*words.split(), "debug"], {}

    @cached_property
    def __signature__(self) -> Signature:
        _, *own = signature(self._function, eval_str=True).parameters.values()
        shared = {name: option for word in self._words for name, option in _SHARED[word].items()}
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in shared.items()
        ]
        return Signature([*own, *more])

    def __call__(self, *, debug: bool, **values: Any) -> int:
        del debug  # read with the command line as a whole
        shared = {name: values.pop(name) for name in Call._fields if name in values}
        return self._function(Call(**shared), **values)


def command(words: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A command with these of the options that commands share, and ``--debug``: ``"json quiet project"``."""
    return lambda function: _Shared(function, words)


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
        value = [parser(item) for item in value] if several else parser(value)
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
