"""The contract of imports: a room imports only rooms below it, no module imports itself through others, and none a name
that is another's own.

``python tools/rooms.py`` checks it, as ``make check`` does; ``--table`` prints the lines of each room. Imports for
types and inside of functions count like any other: what a reader must know is below. Only ``ddcore/__init__.py``,
through which users see the rest, is above the rooms whose names it lists.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
FOLDERS = {"ddcore.io": "io", "ddcore.jobs": "jobs", "ddcore.cli": "cli", "ddcore": "ddcore"}
FACADE = "ddcore"
ROOMS = (
    "ddcore.text", "ddcore.base", "ddcore.compiling", "ddcore.kernels", "ddcore.data", "ddcore.expressions",
    "ddcore.traces", "ddcore.operators", "ddcore.program", "ddcore.reference", "ddcore.algorithms", "ddcore.sql",
    "ddcore.planning", "ddcore.engine", "ddcore.explaining", "ddcore.drawing",
    "ddcore.io.storage", "ddcore.io.parquet", "ddcore.io.project", "ddcore.io.delta", "ddcore.io.ledger",
    "ddcore.io.logs", "ddcore.io.sources", "ddcore.io.state", "ddcore.io.reading", "ddcore.io.publishing",
    "ddcore.io.upkeep",
    "ddcore.jobs", "ddcore.cli",
)  # fmt: skip
"""From the lowest to the highest. Inside of ``jobs`` and ``cli`` only circles are refused."""


def modules(top: Path = TOP) -> dict[str, Path]:
    """The files of all modules, by their names."""
    found = {}
    for package, folder in FOLDERS.items():
        for file in (top / folder).rglob("*.py"):
            names = [package, *file.relative_to(top / folder).with_suffix("").parts]
            found[".".join(names[:-1] if names[-1] == "__init__" else names)] = file
    return found


def imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """What each module imports of the others, anywhere in it."""
    return {name: {*_imported(file, known)} - {name} for name, file in known.items()}


def _imported(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for names in _named(file):
        yield from (name for name in names if name in known and (name == names[0] or names[0] not in known))


@cache
def _named(file: Path) -> list[list[str]]:
    """Of each name that a file imports: itself with its module, and the module alone."""
    named = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        of = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            named.append([".".join([*of, alias.name]), *of])
    return named


def room(module: str) -> str:
    """The room of a module."""
    return next((name for name in reversed(ROOMS) if f"{module}.".startswith(f"{name}.")), FACADE)


def upward(graph: Mapping[str, set[str]]) -> list[str]:
    """Imports of a room above, a line each."""
    height = {name: number for number, name in enumerate(ROOMS)}
    return [
        f"{module} imports {other}: {room(other)} is above {room(module)}"
        for module, others in sorted(graph.items())
        for other in sorted(others)
        if module != FACADE and height.get(room(module), -1) < height.get(room(other), len(ROOMS))
    ]


def circles(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import themselves through others, a line for each circle."""
    found, done, path = list[str](), set[str](), list[str]()

    def visit(module: str) -> None:
        if module in path:
            found.append(" imports ".join([*path[path.index(module) :], module]))
        elif module not in done:
            path.append(module)
            for other in sorted(graph[module]):
                visit(other)
            done.add(path.pop())

    for module in sorted(graph):
        visit(module)
    return found


def private(known: Mapping[str, Path]) -> list[str]:
    """Imports of a name with an underscore from another module, a line each: such a name is that module's own."""
    return [
        f"{module} imports {name}: a name that others use has no underscore"
        for module, file in sorted(known.items())
        for name, *of in _named(file)
        if of and of[0] in known and f"{of[0]}._" in name and not name.endswith("__")
    ]


def table(known: Mapping[str, Path]) -> list[tuple[str, int, int]]:
    """For each room its modules and its lines."""
    lines = {name: len(file.read_text("utf-8").splitlines()) for name, file in known.items()}
    return [
        (name, len(members), sum(lines[member] for member in members))
        for name in (*ROOMS, FACADE)
        if (members := [item for item in known if room(item) == name])
    ]


def main() -> int:
    """0 where the contract holds; else each breach on a line, and 1."""
    known = modules()
    if "--table" in sys.argv:
        for name, count, lines in table(known):
            print(f"{name:20} {count:4} modules {lines:6} lines")
        return 0
    graph = imports(known)
    breaches = [*upward(graph), *circles(graph), *private(known)]
    print(*breaches, sep="\n", end="\n" if breaches else "", file=sys.stderr)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
