"""Functions from compiled kernels, without numba: importing it takes longer than the whole fold of a few rows.

What numba compiles is object code that takes its arguments from Python by itself. It is in an image that was linked
before (:mod:`ddcore.compiling.linked_kernels`), else LLVM links it into this process. Of numba it needs three small
extension modules, which are loaded here by themselves: importing numba would load its compiler too.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import functools
import json
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ddcore.compiling.linking import Entry

_READ, _WRITTEN = 0x0001 | 0x0100, 0x0400  # numpy's flags: rows one after another and aligned; writeable
_linking = threading.Lock()


class Array(NamedTuple):
    """An array argument of a kernel: the type of its elements, its dimensions, and whether the kernel writes to it. Its
    rows lie one after another.
    """

    dtype: str
    dims: int
    writes: bool = False


class Code(NamedTuple):
    """A compiled kernel: object code, the symbol that Python calls, and for each of numba's environments that has
    constants their names, which are types of elements.
    """

    entry: str
    environments: Mapping[str, Sequence[str]]
    objects: bytes

    def packed(self) -> bytes:
        """The kernel's file as bytes: a line of JSON, then the object code."""
        return json.dumps([self.entry, self.environments]).encode() + b"\n" + self.objects

    @classmethod
    def unpacked(cls, content: bytes) -> Code:
        """The code from its bytes. ValueError where they are something else."""
        head, _, objects = content.partition(b"\n")
        entry, environments = json.loads(head)
        return cls(entry, environments, objects)


def function_of(name: str, native: Callable[..., Any], arguments: Sequence[Array | str]) -> Callable[..., Any]:
    """A kernel as a Python function. It raises TypeError for an array of another kind than the kernel was compiled for:
    compiled code would read it as if it were of that kind.

    ``native``: the compiled function itself, which checks no types.
    """
    import numpy as np

    count = len(arguments)
    arrays = [
        (number, _READ | _WRITTEN if kind.writes else _READ, np.dtype(kind.dtype), kind.dims)
        for number, kind in enumerate(arguments)
        if isinstance(kind, Array)
    ]

    def kernel(*values: Any) -> Any:
        if len(values) != count:
            raise TypeError(f"{name} takes {count} arguments, not {len(values)}")
        for argument, flags, dtype, dims in arrays:  # one microsecond for ten arrays
            array = values[argument]
            if array.flags.num & flags != flags or array.dtype is not dtype or array.ndim != dims:
                _check(array, f"{name}: argument {argument}", flags, dtype, dims)
        return native(*values)

    return kernel


def _check(array: Any, what: str, flags: int, dtype: Any, dims: int) -> None:
    """Raise TypeError unless an argument is an array of the kind; a type may be more than one object."""
    if array.flags.num & flags != flags or array.dtype != dtype or array.ndim != dims:
        order = ("" if array.flags.c_contiguous else ", strided") + ("" if array.flags.writeable else ", read-only")
        kind = f"{array.dtype} of {array.ndim} dimensions{order}"
        raise TypeError(f"{what} is {kind}; it takes {dtype} of {dims} dimensions")


def symbols_in(llvm: str) -> tuple[str, str]:
    """The symbols of a kernel in numba's LLVM code: what Python calls, and where the pointer to its environment is."""
    (rest,) = re.findall(r'^define .*@"?_ZN7cpython([^"( ]+)"?\([^\n]*$', llvm, flags=re.MULTILINE)
    return f"_ZN7cpython{rest}", f"_ZN08NumbaEnv{rest}"


def linked(name: str, code: Code) -> Callable[..., Any]:
    """A kernel that LLVM links into this process."""
    from llvmlite import binding

    with _linking:
        engine = _engine()
        engine.add_object_file(binding.ObjectFileRef.from_data(code.objects))
        engine.finalize_object()
        addresses = [
            (engine.get_global_value_address(variable), types) for variable, types in code.environments.items()
        ]
        return _function(name, engine.get_function_address(code.entry), addresses, engine)


def function_at(name: str, base: int, entry: Entry) -> Callable[..., Any]:
    """A kernel of an image that lies at an address."""
    return _function(
        name, base + entry.function, [(base + address, types) for address, types in entry.environments], None
    )


def _function(
    name: str, address: int, environments: Sequence[tuple[int, Sequence[str]]], owner: Any
) -> Callable[..., Any]:
    """The compiled function at an address. Its environments get their constants: where the pointer to each goes."""
    import numpy as np

    made, (_, dynfunc, _) = [], _extensions()
    for variable, constants in environments:
        environment = dynfunc.Environment({})
        environment.consts.extend(map(np.dtype, constants))
        made.append(environment)
        ctypes.c_void_p.from_address(variable).value = id(environment)
    kept = (owner, *made)  # as long as the function
    function: Callable[..., Any] = dynfunc.make_function(
        sys.modules[__name__], name.rpartition(".")[2], name, address, made[0], kept
    )
    return function


@functools.lru_cache(maxsize=1)
def _extensions() -> tuple[Any, Any, Any]:
    """numba's modules with what compiled code calls, ready to be called."""
    helpers, dynfunc, memory = map(_extension, ("_helperlib", "_dynfunc", "core.runtime._nrt_python"))
    _read_constants(helpers)
    memory.memsys_use_cpython_allocator()
    atexit.register(memory.memsys_shutdown)
    return helpers, dynfunc, memory


def symbols() -> dict[str, int]:
    """The addresses of what compiled code calls and names, without the functions of Python and C."""
    helpers, dynfunc, memory = _extensions()
    found = {f"numba_{name}": address for module in (helpers, dynfunc) for name, address in module.c_helpers.items()}
    found |= {name if name.startswith("_") else f"NRT_{name}": address for name, address in memory.c_helpers.items()}
    errors = (kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException))
    return found | {f"PyExc_{kind.__name__}": id(kind) for kind in errors} | {"_Py_NoneStruct": id(None)}


@functools.lru_cache(maxsize=1)
def _engine() -> Any:
    """LLVM's linker with the symbols that compiled kernels need."""
    from llvmlite import binding

    for name, address in symbols().items():
        binding.add_symbol(name, address)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(jit=True)
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)


def _read_constants(helpers: Any) -> None:
    """Let compiled code unpickle its constants, as the class of arrays, without numba: at its first one it imports a
    module of numba for that, and keeps the function that it finds there.
    """
    name = "numba.core.serialize"
    if "numba" in sys.modules:
        return
    module: Any = ModuleType(name)
    module._numba_unpickle = functools.lru_cache(maxsize=None)(_constant)
    unpickle = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)
    first = pickle.dumps(None)
    # Code that is called with these globals imports nothing: it finds only what is in sys.modules.
    call = FunctionType(_call.__code__, {"__builtins__": {"__import__": lambda *_: None}})
    sys.modules[name] = module
    try:
        call(unpickle(helpers.c_helpers["unpickle"]), first, len(first), bytes(20))
    finally:
        del sys.modules[name]


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _constant(address: int, data: bytes, digest: bytes) -> Any:
    """A constant of compiled code, whose bytes are at an address."""
    return pickle.loads(data)


def _extension(name: str) -> Any:
    """An extension module of numba: the one that is loaded already, else loaded without numba. numba finds it in
    ``sys.modules`` if the program imports it later, so there is never a second one.
    """
    full = f"numba.{name}"
    if full not in sys.modules:
        spec = find_spec("numba")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("No module named 'numba'", name="numba")
        stem = os.path.join(spec.submodule_search_locations[0], *name.split("."))
        file = next((stem + ending for ending in EXTENSION_SUFFIXES if os.path.exists(stem + ending)), None)
        if file is None:
            raise ImportError(f"numba has no {name}", name=full)
        loader = ExtensionFileLoader(full, file)
        module = module_from_spec(ModuleSpec(full, loader, origin=file))
        loader.exec_module(module)
        sys.modules[full] = module
    return sys.modules[full]
