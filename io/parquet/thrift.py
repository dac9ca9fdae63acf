"""Thrift's compact protocol, as far as Parquet's headers and footers need it: writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

_TRUE, _I8, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 3, 4, 5, 6, 8, 9, 12


class I32(int):
    """An integer of a field of 32 bits."""


class I64(int):
    """An integer of a field of 64 bits."""


Value: TypeAlias = "I32 | I64 | bool | str | bytes | Sequence[Value] | Struct | Encoded"


class Encoded(bytes):
    """The bytes of a struct."""


class Octets(bytes):
    """A list of integers of 8 bits."""


class Struct:
    """Fields by ascending number; those that are None are left out."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[int, Value | None]) -> None:
        self.fields = fields


def varint(number: int) -> bytes:
    """A number from 0 on, in groups of seven bits, the lowest first."""
    out = bytearray()
    _write_varint(out, number)
    return bytes(out)


def encoded(struct: Struct) -> Encoded:
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, struct.fields)
    return Encoded(out)


# A run writes some hundred files, and most of their footers' bytes pass through here: one buffer, few calls.
_KINDS = {I32: _I32, I64: _I64, str: _BINARY, bytes: _BINARY, Struct: _STRUCT, Encoded: _STRUCT, bool: _TRUE}


def _write_struct(out: bytearray, fields: dict[int, Value | None]) -> None:
    before = 0
    for number, value in fields.items():
        if value is None:
            continue
        kind = _KINDS.get(value.__class__, _LIST)
        if kind == _TRUE and not value:
            kind += 1
        step, before = number - before, number
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, number << 1)
        if kind > _TRUE + 1:
            _write(out, kind, value)
    out.append(0)


def _write(out: bytearray, kind: int, value: Any) -> None:
    """Append a value of this kind; one that is no bool."""
    if kind in (_I32, _I64):
        number = value << 1 ^ value >> 63
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    elif kind == _BINARY:
        content = value.encode() if value.__class__ is str else value
        _write_varint(out, len(content))
        out += content
    elif kind == _LIST:
        _write_list(out, value)
    elif value.__class__ is Encoded:
        out += value
    else:
        _write_struct(out, value.fields)


def _write_list(out: bytearray, values: Sequence[Value]) -> None:
    kind = _I8 if values.__class__ is Octets else _KINDS.get(values[0].__class__, _LIST) if values else _STRUCT
    if len(values) < 15:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _write_varint(out, len(values))
    if isinstance(values, Octets):
        out += values
        return
    for value in values:
        _write(out, kind, value)


def _write_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
