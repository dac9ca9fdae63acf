"""The text of a program, and the place of each part in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from ddcore.base.errors import ProgramError
from ddcore.expressions.failures import Written
from ddcore.sql.dialect_names import DIALECTS

DIALECT = DIALECTS[0]
_LOG = logging.getLogger("ddcore.sql")
_LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Declared:
    """The columns of a binding of WITH MUTUALLY RECURSIVE: names, and their types as written."""

    names: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """The limit of a WITH MUTUALLY RECURSIVE: ``rounds``, None for the default, and whether it then returns."""

    rounds: int | None = None
    returns: bool = False


@dataclass(frozen=True)
class File:
    """One of the files of a program: its name, and where its text is in the text of all. ``head``: the characters at
    its begin that were put before what the file has.
    """

    name: str
    start: int
    end: int
    head: int = 0


@dataclass(frozen=True)
class Decision:
    """What planning decided: the place in the text, the kind of decision, and what it is."""

    source_line: str
    what: str
    text: str


@dataclass
class Source:
    """The text of all files, one behind the other.

    ``declared`` and ``loops`` are found by where the name of a binding begins.
    """

    files: Sequence[File]
    text: str
    declared: dict[int, Declared] = field(default_factory=dict)
    loops: dict[int, Loop] = field(default_factory=dict)
    start: int = 0
    """Where the statement begins that is read or planned: the place of parts in which there is no name."""
    notes: list[str] = field(default_factory=list)
    """What planning has left out, each once, with its place."""
    decisions: list[Decision] = field(default_factory=list)
    """What planning decided, each once."""
    casts: dict[str, Written] = field(default_factory=dict)
    """The casts of the program, by place and text: those inside of others come before them."""
    dialect: str = DIALECT
    _starts: dict[int, tuple[exp.Expr, int | None]] = field(default_factory=dict)
    """Where the first name of a part is, by the part's identity: a SELECT is asked for it at each of its joins."""

    @classmethod
    def of(cls, texts: Mapping[str, str], dialect: str = DIALECT, heads: Mapping[str, str] | None = None) -> Source:
        """The texts of files by name. ``heads``: what was put before some of them."""
        files, start = [], 0
        for name, text in texts.items():
            files.append(File(name, start, start + len(text), len((heads or {}).get(name, ""))))
            start += len(text) + 1
        return cls(files, "\n".join(texts.values()), dialect=dialect)

    def at(self, offset: int) -> str:
        """``file:line:column`` of a character, both from 1."""
        file = next((file for file in reversed(self.files) if file.start <= offset), self.files[0])
        before = self.text[file.start : max(offset, file.start + file.head)][file.head :]
        return f"{file.name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"

    def error_at(self, offset: int, message: str, hint: str) -> ProgramError:
        """An error at a character of the text."""
        return ProgramError(f"{self.at(offset)}: {message}", hint)

    def where(self, node: exp.Expr) -> str:
        """``file:line:column`` of a part: of the first name in it, else of the part around it."""
        if id(node) not in self._starts:
            around: exp.Expr | None = node
            found: list[int] = []
            while around is not None and not found:
                found = [part.meta["start"] for part in around.walk() if "start" in part.meta]
                around = around.parent
            self._starts[id(node)] = node, min(found, default=None)
        start = self._starts[id(node)][1]
        return self.at(self.start if start is None else start)

    def error(self, node: exp.Expr, message: str, hint: str = "") -> ProgramError:
        """An error at a part of the text."""
        return ProgramError(f"{self.where(node)}: {message}", hint)

    def note(self, node: exp.Expr, message: str) -> None:
        """Keep a note on a part of the text, and log it; the same one only once."""
        self._keep(f"{self.where(node)}: {message}")

    def note_at(self, offset: int, message: str) -> None:
        """The same at a character of the text."""
        self._keep(f"{self.at(offset)}: {message}")

    def _keep(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            _LOG.info("note: %s", note)

    def decide(self, node: exp.Expr, what: str, text: str) -> None:
        """Keep what planning decided about a part of the text."""
        decision = Decision(self.where(node), what, text)
        if decision not in self.decisions:
            self.decisions.append(decision)

    def refuse(self, node: exp.Expr, what: str, hint: str = "docs/sql.md lists what is supported") -> NoReturn:
        """Raise the error of what is SQL but is not supported."""
        raise self.error(node, f"{what} is not supported: {shown(node)}", hint)


def parts(nodes: Iterable[exp.Expr], inside: Callable[[exp.Expr], Iterable[exp.Expr]]) -> Iterator[exp.Expr]:
    """These parts and what is ``inside`` them, each before its own: chains of terms are too deep to recurse."""
    waiting = [*nodes][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [*inside(node)][::-1]


def shown(node: exp.Expr) -> str:
    """A part as SQL, cut behind a word where it is long."""
    dialect = dialect_of(node)
    whole = node.transform(_as_written) if node.find(exp.Subquery) else node
    return cut(whole.sql(dialect=dialect, unsupported_level=ErrorLevel.IGNORE))


def _as_written(node: exp.Expr) -> exp.Expr:
    """What a subquery stands for that was put in the place of a function."""
    return node.meta["written"] if isinstance(node, exp.Subquery) and "written" in node.meta else node


def dialect_of(node: exp.Expr) -> str:
    """The dialect that a part is written in: the root of its statement has it."""
    return str(node.root().meta.get("dialect", DIALECT))


def called(node: exp.Expr) -> str:
    """The name of a function, as SQL writes it."""
    name = re.match(r"\w+", node.sql(dialect=dialect_of(node), unsupported_level=ErrorLevel.IGNORE))
    if isinstance(node, exp.Func) and not isinstance(node, exp.Cast) and name and name.group() == "CAST":
        return node.sql_name().lower()
    return name.group().lower() if name else shown(node)


def given(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a function, in order, which sqlglot has as a list only where it does not know the function."""
    first = [] if isinstance(node, exp.Anonymous) else [node.args.get("this"), node.args.get("expression")]
    return [part for part in (*first, *node.expressions) if isinstance(part, exp.Expr)]


def cut(text: str) -> str:
    """A piece of the text on one line, cut behind a word where it is long."""
    text = " ".join(text.split())
    if len(text) <= _LONGEST_SHOWN:
        return text
    words = re.match(rf".{{1,{_LONGEST_SHOWN - 4}}}(?=\s)", text)
    return f"{words.group() if words else text[: _LONGEST_SHOWN - 4]} ..."
