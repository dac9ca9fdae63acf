"""An image of compiled kernels: object code of several files, linked once, so that a process needs no linker.

LLVM takes longer to load than it takes to link all kernels. What numba compiles for x86-64 on Linux is simple: all
addresses have 64 bits, so a section can lie anywhere, and the only relocation is "write the address here". So an image
is the sections one after another, and two lists: where the image's own addresses go, and where those of functions of
Python, numba and C go, which it calls. Anything else in an object file is refused; then LLVM links, as it always can.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ddcore.base.lazy import numpy as np
from ddcore.base.record import record

_HEADER, _SECTION, _SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ELF, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01\x01", 1, 62
_SYMBOLS, _RELOCATIONS = 2, 4  # types of sections
_ALLOCATED, _WRITTEN = 0x2, 0x1  # flags of sections
_UNDEFINED, _COMMON = 0, 0xFFF2  # sections of symbols
_ADDRESS = 1  # R_X86_64_64, the type of a relocation
_UNWINDING = ".eh_frame"  # for exceptions of C++ and debuggers; kernels raise none
_PAGE = 65_536  # as large as that of any machine
_EXECUTABLE = 4 | 1  # PROT_EXEC | PROT_READ


class UnlinkableError(Exception):
    """Object code that only LLVM can link."""


class Entry(NamedTuple):
    """Where a kernel begins, and its environments: where the pointer to each goes, and the types of its constants."""

    function: int
    environments: list[tuple[int, list[str]]]


@record
class Image:
    """Linked kernels: ``entries`` by name, ``content`` with what is executed before ``data``, then what is written.

    ``own``: (place, target) pairs, int64[n, 2]: the address of the target goes to the place. ``calls``: (place, number,
    addend) triples, with numbers of ``symbols``, whose addresses go there.
    """

    entries: Mapping[str, Entry]
    symbols: list[str]
    data: int
    content: bytes
    own: np.ndarray
    calls: np.ndarray

    def packed(self) -> bytes:
        """The image's file as bytes: a line of JSON, the two lists, the content."""
        head = [self.entries, self.symbols, self.data, len(self.own), len(self.calls)]
        return json.dumps(head).encode() + b"\n" + self.own.tobytes() + self.calls.tobytes() + self.content

    @classmethod
    def unpacked(cls, packed: bytes) -> Image:
        """The image from its bytes. ValueError where they are something else."""
        head, _, rest = packed.partition(b"\n")
        entries, symbols, data, own, calls = json.loads(head)
        numbers = np.frombuffer(rest, np.int64, 2 * own + 3 * calls)
        return cls(
            {name: Entry(*entry) for name, entry in entries.items()}, symbols, data, rest[numbers.nbytes :],
            numbers[: 2 * own].reshape(own, 2), numbers[2 * own :].reshape(calls, 3),
        )  # fmt: skip

    def load(self, addresses: Mapping[str, int], protection: int = _EXECUTABLE) -> int:
        """Put the image into memory, for good, and return its address. ``addresses``: of the symbols.
        ``protection``: of its pages of code, as ``mprotect`` takes it.

        Raises KeyError for a symbol that has none, OSError where the system does not let code be made executable.
        """
        found = np.array([addresses[name] for name in self.symbols], np.int64)
        memory = mmap.mmap(-1, len(self.content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        _placed.append(memory)
        content = np.frombuffer(memory, np.uint8)
        content[:] = np.frombuffer(self.content, np.uint8)
        _write(content, self.own[:, 0], self.own[:, 1] + base)
        _write(content, self.calls[:, 0], found[self.calls[:, 1]] + self.calls[:, 2])
        c = ctypes.CDLL(None, use_errno=True)
        if c.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(self.data), protection):
            raise OSError(ctypes.get_errno(), "code cannot be made executable")
        return base


_placed: list[mmap.mmap] = []  # functions point into them


def _write(content: np.ndarray, positions: np.ndarray, words: np.ndarray) -> None:
    """Write words of 64 bits at places that need not be aligned."""
    content[positions[:, None] + np.arange(8)] = words.view(np.uint8).reshape(-1, 8)


# -- linking -----------------------------------------------------------------------------------------------------------


def link(kernels: Mapping[str, tuple[str, Mapping[str, list[str]], bytes]]) -> Image:
    """Link kernels, by name: the symbol that Python calls, the types of constants by environment, and an object file.

    Raises UnlinkableError.
    """
    linker = _Linker()
    try:
        for name, (entry, environments, objects) in kernels.items():
            linker.add(name, entry, environments, _Object(objects))
    except (struct.error, KeyError, IndexError, ValueError) as error:
        raise UnlinkableError(str(error)) from error
    return linker.image()


@dataclass
class _Linker:
    """An image under construction. What is written comes last: places there count from its begin, until it is known."""

    code: bytearray = field(default_factory=bytearray)
    data: bytearray = field(default_factory=bytearray)
    symbols: dict[str, int] = field(default_factory=dict)
    entries: dict[str, tuple[_Position, list[tuple[_Position, list[str]]]]] = field(default_factory=dict)
    own: list[tuple[_Position, _Position]] = field(default_factory=list)
    calls: list[tuple[_Position, int, int]] = field(default_factory=list)

    def add(self, name: str, entry: str, environments: Mapping[str, list[str]], objects: _Object) -> None:
        """Add a kernel with all that its object file has."""
        bases = {number: self._lay(section) for number, section in objects.allocated()}
        positions: dict[int, _Position] = {}
        named: dict[str, _Position] = {}
        for number, symbol in enumerate(objects.symbols):
            if symbol.section in bases:
                positions[number] = bases[symbol.section].moved(symbol.value)
            elif symbol.section == _COMMON:
                positions[number] = _Position(self._room(self.data, symbol.size, symbol.value), is_data=True)
            if symbol.name and number in positions:
                named[symbol.name] = positions[number]
        for target, offset, number, addend in objects.relocations():
            at = bases[target].moved(offset)
            if number in positions:
                self.own.append((at, positions[number].moved(addend)))
            elif objects.symbols[number].section != _UNDEFINED:
                raise UnlinkableError(f"{objects.symbols[number].name} is in no section")
            else:
                called = self.symbols.setdefault(objects.symbols[number].name, len(self.symbols))
                self.calls.append((at, called, addend))
        self.entries[name] = named[entry], [(named[symbol], [*types]) for symbol, types in environments.items()]

    def _lay(self, section: _Section) -> _Position:
        part = self.data if section.is_written else self.code
        position = self._room(part, len(section.content), section.alignment)
        part[position : position + len(section.content)] = section.content
        return _Position(position, section.is_written)

    def _room(self, part: bytearray, size: int, alignment: int) -> int:
        """The place of some zeros at the end of a part."""
        part += bytes(-len(part) % max(1, alignment))
        position = len(part)
        part += bytes(size)
        return position

    def image(self) -> Image:
        """The finished image."""
        data = len(self.code) + -len(self.code) % _PAGE
        content = bytes(self.code).ljust(data, b"\0") + bytes(self.data)
        return Image(
            {
                name: Entry(entry.at(data), [(position.at(data), types) for position, types in environments])
                for name, (entry, environments) in self.entries.items()
            },
            [*self.symbols],
            data,
            content,
            np.array([(at.at(data), to.at(data)) for at, to in self.own], np.int64).reshape(-1, 2),
            np.array([(at.at(data), *rest) for at, *rest in self.calls], np.int64).reshape(-1, 3),
        )


class _Position(NamedTuple):
    """A position in what is executed, or in what is written."""

    offset: int
    is_data: bool

    def moved(self, by: int) -> _Position:
        return self._replace(offset=self.offset + by)

    def at(self, data: int) -> int:
        """The place in the image, in which what is written begins at ``data``."""
        return self.offset + data * self.is_data


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    content: bytes
    link: int
    info: int
    alignment: int

    @property
    def is_written(self) -> bool:
        return bool(self.flags & _WRITTEN)


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    size: int


class _Object:
    """An object file of ELF for x86-64."""

    def __init__(self, content: bytes) -> None:
        mark, kind, machine, _, _, _, table, _, _, _, _, _, count, names = _HEADER.unpack_from(content)
        if not mark.startswith(_ELF) or kind != _RELOCATABLE or machine != _X86_64:
            raise UnlinkableError("no object file of ELF for x86-64")
        heads = [_SECTION.unpack_from(content, table + number * _SECTION.size) for number in range(count)]
        texts = content[heads[names][4] : heads[names][4] + heads[names][5]]
        self.sections = [
            _Section(_text(texts, head[0]), head[1], head[2], content[head[4] : head[4] + head[5]], *head[6:9])
            for head in heads
        ]
        (table_of_symbols,) = (section for section in self.sections if section.kind == _SYMBOLS)
        texts = self.sections[table_of_symbols.link].content
        self.symbols = [
            _Symbol(_text(texts, name), section, value, size)
            for name, _, _, section, value, size in _SYMBOL.iter_unpack(table_of_symbols.content)
        ]

    def allocated(self) -> Iterator[tuple[int, _Section]]:
        """The sections that are in memory when a kernel runs, with their numbers."""
        for number, section in enumerate(self.sections):
            if section.flags & _ALLOCATED and section.name != _UNWINDING and section.content:
                if section.kind != 1:  # what is plainly in the file
                    raise UnlinkableError(f"section {section.name} is of kind {section.kind}")
                yield number, section

    def relocations(self) -> Iterator[tuple[int, int, int, int]]:
        """The section, the place in it, the number of the symbol whose address goes there, and what is added to it."""
        for section in self.sections:
            target = self.sections[section.info] if section.kind == _RELOCATIONS else None
            if target is None or target.name == _UNWINDING:
                continue
            for offset, what, addend in _RELOCATION.iter_unpack(section.content):
                if what & 0xFFFFFFFF != _ADDRESS or offset + 8 > len(target.content):
                    raise UnlinkableError(f"relocation {what & 0xFFFFFFFF} in {target.name}")
                yield section.info, offset, what >> 32, addend


def _text(texts: bytes, start: int) -> str:
    return texts[start : texts.index(b"\0", start)].decode()
