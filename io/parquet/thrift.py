"""Thrift's compact protocol, as far as Parquet's headers and footers need it: writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["I32", "I64", "Struct", "encoded", "varint"]

_TRUE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 4, 5, 6, 8, 9, 12


class I32(int):
    """An integer of a field of 32 bits."""


class I64(int):
    """An integer of a field of 64 bits."""


Value: TypeAlias = "I32 | I64 | bool | str | bytes | Sequence[Value] | Struct"


class Struct:
    """Fields by ascending number; those that are None are left out."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[int, Value | None]) -> None:
        self.fields = fields


def varint(number: int) -> bytes:
    """A number from 0 on, in groups of seven bits, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def encoded(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out, before = bytearray(), 0
    for number, value in struct.fields.items():
        if value is None:
            continue
        kind = (_TRUE if value else _TRUE + 1) if isinstance(value, bool) else _kind(value)
        step = number - before
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _zigzag(number)
        if not isinstance(value, bool):
            out += _encoded(value)
        before = number
    return bytes(out) + b"\0"


def _kind(value: Value) -> int:
    if isinstance(value, I32 | I64):
        return _I32 if isinstance(value, I32) else _I64
    if isinstance(value, str | bytes):
        return _BINARY
    return _STRUCT if isinstance(value, Struct) else _LIST


def _encoded(value: Value) -> bytes:
    if isinstance(value, int):
        return _zigzag(value)
    if isinstance(value, str | bytes):
        content = value.encode() if isinstance(value, str) else value
        return varint(len(content)) + content
    if isinstance(value, Struct):
        return encoded(value)
    kind = _kind(value[0]) if value else _STRUCT
    head = bytes([len(value) << 4 | kind]) if len(value) < 15 else bytes([0xF0 | kind]) + varint(len(value))
    return head + b"".join(map(_encoded, value))


def _zigzag(number: int) -> bytes:
    return varint(number << 1 ^ number >> 63)
