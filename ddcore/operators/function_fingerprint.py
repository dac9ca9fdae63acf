"""User functions as text: everything in a function that a fingerprint must cover to tell it from other functions.

The text is a digest of everything that the function's result may depend on: its source, the values it captured, and the
names it reads in its own module and in the modules beside it; for an object, its class and its attributes; for a frame,
schema and values. No part of it is a pickle, so an upgrade of a library does not change it. Two limits: names of other
libraries are assumed to keep their meaning, and imports inside of the function are not followed. A value that cannot
be distinguished from another of its kind (an open file, a generator) is refused.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import polars as pl

from ddcore.base.digests import Part, digest
from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.symbol import Symbol
from ddcore.operators.introspection import (
    allow_no_source,
    attributes_of,
    attributes_read,
    globals_read,
    has_source,
    holds_more,
    is_of_enum,
    module_of,
    reach_of,
)
from ddcore.text.wording import described

_PLAIN = (int, float, complex, bool, type(None), type(...), type(NotImplemented), range, Decimal, timedelta)
_PLAIN_VALUES = "give it plain values (numbers, texts, lists, frames), and make the rest inside of the function"
_STATELESS = ("_thread.lock", "_thread.RLock")  # locks change no result
_OF_EVERY_CLASS = {
    "__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__slots__", "__firstlineno__",
    "__static_attributes__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__",
    "__annotate__", "__annotate_func__", "__annotations_cache__", "__parameters__", "__orig_bases__",
    "__slotnames__",
}  # fmt: skip


def name_of(function: Any) -> str:
    """The name of a function in messages."""
    return str(getattr(function, "__name__", type(function).__name__)).replace("<lambda>", "lambda")


def text_of(function: Any) -> str:
    """A text that differs where two functions may differ.

    The same in every process and on every machine, wherever the function's file lies. Raises ProgramError, which names
    the value, where the function holds something that has no text. Cost: linear in the size of what was captured.
    """
    reader = _Reader(function)
    try:
        return reader.text(function)
    except ProgramError:
        raise
    except RecursionError:
        raise ProgramError(
            f"the function {name_of(function)} holds a value that is nested too deeply",
            "keep such a value in a flat list or a frame",
        ) from None
    except Exception as error:  # an object may raise anything when its attributes are read
        raise ProgramError(f"{reader.where()} cannot be read: {described(error)}", _PLAIN_VALUES) from error


class _Reader:
    """Reads one function. Values that may refer to themselves are numbered, and named by number from then on."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._numbers: dict[int, tuple[int, Any]] = {}  # by id; the reference keeps the id from being reused
        self._path: list[str] = []
        while isinstance(root, functools.partial | MethodType):
            root = root.func if isinstance(root, functools.partial) else root.__func__
        home = root if isinstance(root, FunctionType | type) else type(root)
        self._home = module_of(home).partition(".")[0]

    def text(self, value: Any) -> str:
        """The text of any value."""
        if type(value) in _PLAIN:
            return digest(type(value).__name__, repr(value))
        if type(value) in (str, bytes, bytearray):
            return digest(type(value).__name__, value if isinstance(value, str) else bytes(value))
        if type(value) is tuple:
            return digest("tuple", [self._at(f"[{position}]", element) for position, element in enumerate(value)])
        number = self._numbers.get(id(value))
        if number is not None:
            return digest("again", str(number[0]))
        self._numbers[id(value)] = len(self._numbers), value
        return digest(*self._parts(value))

    def _at(self, where: str, value: Any) -> str:
        """The text of a part, with its place recorded for messages."""
        self._path.append(where)
        text = self.text(value)
        self._path.pop()
        return text

    def _parts(self, value: Any) -> Iterator[Part]:  # noqa: PLR0912  (one branch, one type)
        if isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, ModuleType):
            yield from ("module", value.__name__ if reach_of(value.__name__, self._home) != "all" else "")
        elif isinstance(value, MethodType):
            yield from ("method", self._at(".__self__", value.__self__), self.text(value.__func__))
        elif isinstance(value, BuiltinFunctionType):
            of = value.__self__
            yield from ("builtin", value.__name__, of.__name__ if isinstance(of, ModuleType) else self.text(of))
        elif isinstance(value, ClassMethodDescriptorType):  # what no pickle knows; classes of C have some
            yield from ("class method", value.__name__, self.text(value.__objclass__))
        elif isinstance(value, functools.partial):
            parts = self._at(".func", value.func), self._at(".args", value.args), self._at(".keywords", value.keywords)
            yield from ("partial", *parts)
        elif isinstance(value, functools._lru_cache_wrapper):
            yield from ("cached", self.text(value.__wrapped__))
        elif module_of(type(value)).startswith("numba.") and isinstance(vars(value).get("py_func"), FunctionType):
            yield from ("compiled", self.text(vars(value)["py_func"]))
        elif type(value) in (list, dict, set, frozenset, MappingProxyType):
            yield from self._container(value)
        elif isinstance(value, enum.Enum):
            yield from ("member", self.text(type(value)), value.name)
        elif type(value) in (date, datetime, time):
            yield from (type(value).__name__, value.isoformat(), str(getattr(value, "fold", "")))
            yield self.text(getattr(value, "tzinfo", None))
        elif isinstance(value, PurePath):
            yield from (type(value).__name__, str(value))
        else:
            yield from self._data(value)

    def _container(self, value: Any) -> Iterator[Part]:
        yield type(value).__name__
        if isinstance(value, list):
            yield [self._at(f"[{number}]", element) for number, element in enumerate(value)]
        elif isinstance(value, set | frozenset):  # the order differs between processes: no element may depend on it
            outer, texts = dict(self._numbers), []
            for item in value:
                texts.append(self._at("{...}", item))
                self._numbers = dict(outer)
            yield sorted(texts)
        else:
            yield [[self.text(key), self._at(f"[{key!r:.40}]", element)] for key, element in value.items()]

    def _data(self, value: Any) -> Iterator[Part]:
        """Expressions, collections, frames and arrays; then any other object."""
        library = module_of(type(value)).partition(".")[0]
        if isinstance(value, pl.Expr):
            yield from ("expression", *self._expression(value))
        elif isinstance(value, Symbol) and (identity := value._identity()):
            yield from ("collection", identity)
        elif isinstance(value, pl.DataFrame):
            yield from ("frame", str(value.height), [self._series(column) for column in value.get_columns()])
        elif isinstance(value, pl.Series):
            yield from ("series", *self._series(value))
        elif isinstance(value, pl.LazyFrame):
            raise self._refusal(value, "collect it first")
        elif library == "pyarrow" and (hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")):
            kind = value.schema if hasattr(value, "schema") else value.type
            yield from ("arrow", str(kind), self.text(pl.from_arrow(value)))
        elif library == "pandas" and hasattr(value, "to_numpy"):
            yield from self._pandas(value)
        elif "numpy" in sys.modules and (type(value) is np.ndarray or isinstance(value, np.generic)):
            yield type(value).__name__
            yield from self._array(np.asarray(value))
        elif "numpy" in sys.modules and isinstance(value, np.dtype):
            yield from ("dtype", str(value.descr if value.names else value.str))
        else:
            yield from self._object(value)

    # -- functions and classes ----------------------------------------------------------------------------------------

    def _function(self, function: FunctionType) -> Iterator[Part]:
        code, reach = function.__code__, self._reach(function)
        yield "function"
        if reach != "all":
            yield from (module_of(function), function.__qualname__)
        if reach == "name":
            return
        yield self._source(code)
        if reach == "source":
            return
        yield self.text((function.__defaults__, function.__kwdefaults__))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            yield f"captured {name}"
            try:
                captured = cell.cell_contents
            except ValueError:  # not filled yet: a function that names itself
                yield "itself"
            else:
                yield from self._value(name, captured, code)
        for name in sorted(globals_read(code)):
            if name in function.__globals__ and not name.startswith("__"):
                yield f"global {name}"
                yield from self._value(name, function.__globals__[name], code)
        for name, attribute in sorted(vars(function).items()):
            yield f"attribute {name}"
            yield self._at(f".{name}", attribute)

    def _value(self, name: str, value: Any, code: CodeType) -> Iterator[Part]:
        """A captured or global value; of a module of the user's own, what the function may read there."""
        yield self._at(f".{name}", value)
        if isinstance(value, ModuleType) and reach_of(value.__name__, self._home) == "all":
            for attribute in sorted(attributes_read(code) & vars(value).keys()):
                if not attribute.startswith("__"):
                    yield attribute
                    yield self._at(f".{name}.{attribute}", vars(value)[attribute])

    def _source(self, code: CodeType) -> str:
        """A function's own text: its source; without one its byte code and constants, nested functions included."""
        try:
            # From the code, because for a decorated function Python returns the source of the wrapped one.
            source = textwrap.dedent(inspect.getsource(code)).strip()
        except (OSError, TypeError):
            constants = [
                self._source(const) if isinstance(const, CodeType) else self.text(const) for const in code.co_consts
            ]
            return digest("code", code.co_code, code.co_names, constants)
        if code.co_name != "<lambda>":
            return digest("source", source)
        ends = [(line, end) for _, line, _, end in code.co_positions() if line is not None and end is not None]
        line, end = max(ends, default=(code.co_firstlineno, 0))  # the end distinguishes two lambdas of one line
        return digest("source", source, code.co_qualname, str(line - code.co_firstlineno), str(end))

    def _class(self, cls: type) -> Iterator[Part]:
        """A class by its source, its attributes and its bases."""
        reach = self._reach(cls)
        yield from ("class", cls.__qualname__)
        if reach != "all":
            yield module_of(cls)
        if reach == "name":
            return
        source = ""
        with allow_no_source():
            source = textwrap.dedent(inspect.getsource(cls)).strip()
        yield source
        if reach == "source":
            return
        yield [self.text(base) for base in cls.__bases__]
        if type(cls) is not type:
            yield self.text(type(cls))
        if issubclass(cls, enum.Enum):
            yield [[name, self._at(f".{name}", member._value_)] for name, member in cls.__members__.items()]
        for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
            if field.default_factory is not dataclasses.MISSING:
                yield from (field.name, self._at(f".{field.name}", field.default_factory))
        for name, value in sorted(vars(cls).items()):
            if name not in _OF_EVERY_CLASS and not (issubclass(cls, enum.Enum) and is_of_enum(value)):
                yield from self._attribute(name, value, bool(source))

    def _attribute(self, name: str, value: Any, is_in_source: bool) -> Iterator[Part]:
        inner: tuple[Any, ...] = (value,)
        if isinstance(value, staticmethod | classmethod):
            inner = (value.__func__,)
        elif isinstance(value, property):
            inner = (value.fget, value.fset, value.fdel)
        elif inspect.isgetsetdescriptor(value) or inspect.ismemberdescriptor(value):
            inner = ()
        for code in inner:
            if is_in_source and isinstance(code, FunctionType) and not has_source(code.__code__):
                continue  # from a decorator that the source names, such as dataclass
            yield name
            yield self._at(f".{name}", code)

    def _reach(self, thing: FunctionType | type) -> str:
        """How far a function or class is read: ``name``, its ``source``, or ``all``."""
        module = module_of(thing)
        reach = reach_of(module, self._home)
        value: Any = sys.modules.get(module)
        for name in thing.__qualname__.split("."):
            value = getattr(value, name, None)
        return reach if value is thing else "all"  # a local function of a library has no importable name

    # -- objects ------------------------------------------------------------------------------------------------------

    def _object(self, value: Any) -> Iterator[Part]:
        cls = type(value)
        yield from ("object", self.text(cls))
        if f"{module_of(cls)}.{cls.__qualname__}" in _STATELESS:
            return
        if self._reach(cls) != "all" or holds_more(cls) or cls in copyreg.dispatch_table:
            yield from self._reduce(value)
            return
        for name, attribute in sorted(attributes_of(value).items()):
            yield name
            yield self._at(f".{name}", attribute)

    def _reduce(self, value: Any) -> Iterator[Part]:
        """An object of a library, by its parts as in a pickle."""
        try:
            reduction = copyreg.dispatch_table[type(value)](value) if type(value) in copyreg.dispatch_table else None
            reduction = value.__reduce_ex__(4) if reduction is None else reduction
            if isinstance(reduction, str):  # the name of a global
                yield from (module_of(value), reduction)
                return
            call, arguments, state, items, pairs = (*reduction, None, None, None)[:5]
            parts = (call, arguments, state, list(items or ()), [tuple(pair) for pair in pairs or ()])
        except Exception:
            raise self._refusal(value) from None
        for part in parts:
            yield self.text(part)

    def where(self) -> str:
        """The value that is being read, for messages."""
        where = "".join(self._path).lstrip(".")
        return f"the function {name_of(self._root)}{where and ': ' + where}"

    def _refusal(self, value: Any, hint: str = "") -> ProgramError:
        return ProgramError(
            f"{self.where()} is of type {type(value).__name__}, of which two values cannot be told apart: a change of "
            "it would not be noticed",
            hint or _PLAIN_VALUES,
        )

    # -- data: schema and values in a form of our own -----------------------------------------------------------------

    def _expression(self, expr: pl.Expr) -> Iterator[Part]:
        from ddcore.expressions.canonical import identity

        try:
            parts = identity(expr)
        except ProgramError:
            raise self._refusal(expr, "keep a function that makes the expression, not the expression") from None
        yield parts
        yield [expr.meta.output_name(raise_if_undetermined=False) or ""]

    def _series(self, series: pl.Series) -> list[Part]:
        """Name, type, nulls and values of a column."""
        dtype = series.dtype
        parts: list[Part] = [series.name, _dtype(dtype), str(len(series))]
        parts.append(np.packbits(series.is_null().to_numpy()).tobytes() if series.null_count() else b"")
        if isinstance(dtype, pl.Object):
            raise self._refusal(series, "give the column a type of its own")
        if isinstance(dtype, pl.List):
            parts += [
                _bytes(series.list.len().fill_null(0)),
                *self._series(series.drop_nulls().explode(empty_as_null=False, keep_nulls=False)),
            ]
        elif isinstance(dtype, pl.Array):
            parts += self._series(series.arr.to_list())
        elif isinstance(dtype, pl.Struct):
            parts += [self._series(field) for field in series.struct.unnest().get_columns()]
        elif isinstance(dtype, pl.Binary):
            parts += [_bytes(series.bin.size().fill_null(0)), b"".join(series.drop_nulls().to_list())]
        elif dtype.is_decimal() or isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
            texts = series.cast(pl.String)
            parts += [_bytes(texts.str.len_bytes().fill_null(0)), "".join(texts.drop_nulls().to_list())]
        elif dtype in (pl.Int128, pl.UInt128):
            parts.append(" ".join(map(str, series.to_list())))
        elif dtype != pl.Null:
            parts.append(_bytes(series.to_physical()))
        return parts

    def _array(self, array: np.ndarray) -> Iterator[Part]:
        yield from ("array", str(array.dtype.descr if array.dtype.names else array.dtype.str), str(array.shape))
        yield self.text(array.tolist()) if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()

    def _pandas(self, value: Any) -> Iterator[Part]:
        yield from ("pandas", type(value).__name__)
        columns = [value.iloc[:, position] for position in range(value.shape[1])] if value.ndim > 1 else [value]
        for column in columns:
            yield from (self.text(column.name), str(column.dtype), *self._array(column.to_numpy()))
        if hasattr(value, "index"):
            yield from (self.text(list(value.index.names)), *self._array(value.index.to_numpy()))


def _dtype(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Enum):
        return digest("Enum", dtype.categories.to_list())
    if isinstance(dtype, pl.List | pl.Array):
        inner = dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()
        return digest(type(dtype).__name__, str(getattr(dtype, "size", "")), _dtype(inner))
    if isinstance(dtype, pl.Struct):
        return digest("Struct", [[field.name] for field in dtype.fields])
    return "Categorical" if isinstance(dtype, pl.Categorical) else str(dtype)


def _bytes(series: pl.Series) -> bytes:
    """The values of a column of fixed width; nulls as zeros."""
    plain = series.cast(pl.UInt8) if series.dtype == pl.Boolean else series
    return bytes(plain.fill_null(0).to_numpy().tobytes())
