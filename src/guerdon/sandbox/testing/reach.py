"""Permissions of the program in the tests' process: what it receives, reads, calls and changes.

Runs inside a sandbox, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any

from . import containers, plain, remote

#: Frames, code and modules lead to the names of the tests.
_FORBIDDEN = (CodeType, FrameType, ModuleType, TracebackType, CellType, MethodWrapperType)
#: Callables that a module defines, found there by their names.
_NAMED = (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    type,
)
_METHODS = "aiter anext await call contains getitem iter len next repr reversed str"
_CALLABLE = frozenset(f"__{name}__" for name in _METHODS.split())
#: Attributes of functions and classes that a decorator reads.
_DESCRIPTIONS = frozenset({"__doc__", "__module__", "__name__", "__qualname__"})
#: The modules whose objects have attributes that the program may use, as those of the tests have.
#: None of them opens a file by its name, starts a program, or formats a text of the program.
_MODULES = (
    "_csv _io _queue _random _thread argparse array asyncio.locks asyncio.queues collections "
    "concurrent.futures._base concurrent.futures.thread datetime decimal fractions io ipaddress "
    "logging queue random re sqlite3 threading time types unittest.mock zoneinfo"
)
_OPEN = frozenset(_MODULES.split())
_OWNERS = _OPEN | {"abc", "builtins", "enum", "tests", "typing"}
#: Methods of mocks that set any attribute.
_SETTERS = frozenset({"attach_mock", "configure_mock", "mock_add_spec"})
#: What a pickle that a test reads may name. A pickle that the program has written could call any
#: other function, and replace the methods of any class that can be changed.
_PICKLED = {("builtins", name) for name in plain.NAMES} | {
    *(("collections", name) for name in ("OrderedDict", "defaultdict", "deque")),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
    ("decimal", "Decimal"),
}
#: Those of their classes whose objects the program may change.
_CHANGED = frozenset({("types", "SimpleNamespace"), ("argparse", "Namespace")})


def global_of(value: Any) -> tuple[str, str] | None:
    """Return the module and name of a callable that the standard library defines.

    The program receives the name and uses the object of its own process. So no function of the
    library that a test passes to it (``reduce``, ``attrgetter``, ``open``) runs in the tests'
    process for it.
    """
    if not isinstance(value, _NAMED):
        return None
    owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
    module = getattr(owner if isinstance(owner, type) else value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if type(module) is not str or type(name) is not str:
        return None
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value or (owner and found == value) else None


def may_have(value: Any) -> None:
    """Raise for objects that the program must not receive."""
    what: Any = ""
    if isinstance(value, _FORBIDDEN) or (
        isinstance(value, type) and issubclass(value, remote.Remote)
    ):
        what = type(value).__name__
    elif type(value).__module__ == "unittest.mock" and hasattr(value, "__dict__"):
        what = "module" if isinstance(vars(value).get("_mock_wraps"), ModuleType) else ""
    elif isinstance(value, BuiltinFunctionType):
        what = value.__qualname__ if isinstance(value.__self__, (ModuleType, type(None))) else ""
    if what:
        raise TypeError(f"a test can't pass this to the program: {what}")


def guard(table: Any) -> None:
    """Raise for dictionaries with the names of a module."""
    if dict.__contains__(table, "__builtins__") or dict.__contains__(table, "__loader__"):
        raise TypeError("a test can't pass this to the program: the names of a module")


def methods_of(value: Any, methods: list[str]) -> list[str]:
    """Return the special methods that the program may call."""
    if _is_open(value) or type(value).__name__ == "KeyWrapper":  # of functools.cmp_to_key
        return methods
    return sorted(_CALLABLE.intersection(methods))


def audit(event: str, args: tuple[Any, ...]) -> None:
    """Raise before a test reads a pickle of more than plain values; see `sys.addaudithook`."""
    if event == "pickle.find_class" and args not in _PICKLED:
        raise TypeError(f"a test can't read a pickle that names {'.'.join(args)}")


def may_call(value: Any) -> bool:
    """Return whether the program may call an object; it has its own functions of the library."""
    return callable(value) and global_of(value) is None


def may_read(value: Any, name: str) -> bool:
    """Return whether the program may read an attribute."""
    special = _SPECIAL_READS.get(name)
    if special is not None:
        return special(value, name)
    return (id(value), name) in _added or _may_read_public(value, name)


def _may_read_description(value: Any, name: str) -> bool:
    text = getattr(value, name, None) if callable(value) else ()
    return text is None or type(text) is str


def _may_read_table(value: Any, name: str) -> bool:
    has_private = any(each.startswith("_") for each in getattr(value, name, ()))
    return _is_own_class(type(value)) and not has_private


_SPECIAL_READS: dict[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys(remote.SIGNATURE, lambda value, name: isinstance(value, FunctionType)),
    **dict.fromkeys(_DESCRIPTIONS, _may_read_description),
    "__dict__": _may_read_table,
}


def _may_read_public(value: Any, name: str) -> bool:
    kind = value if _is_own_class(value) else type(value)
    if not (_is_open(value) or kind is value) or name.startswith("_") or name in _SETTERS:
        return False
    # A class of the tests may derive from one whose methods would do something for the program.
    owner = next((each for each in plain.mro_of(kind) if name in vars(each)), None)
    return owner is None or owner.__module__ in _OWNERS


def may_change(value: Any, name: str) -> bool:
    """Return whether the program may set or delete an attribute, which must be data.

    Callables decide whether a test passes: the program could replace them by its own.
    """
    if isinstance(value, type):
        return _may_decorate(value, name)
    kind = type(value)
    where = (kind.__module__, kind.__name__)
    if where[0] not in ("tests", "unittest.mock") and where not in _CHANGED:
        return False
    return _may_add(value, name) or _may_set(value, kind, name)


def _may_decorate(kind: type, name: str) -> bool:
    """Return whether an attribute is one that a class decorator adds."""
    is_usual = not name.startswith("_") or name in ("__repr__", "__str__")
    is_new = not any(name in vars(each) for each in plain.mro_of(kind)[:-1])
    return is_usual and is_new and _is_own_class(kind)


def _may_add(value: Any, name: str) -> bool:
    """Return whether an attribute is a private one that the program has added, or adds now."""
    is_private = name.startswith("_") and not name.startswith("__")
    if type(value).__module__ == "tests" and is_private and not hasattr(value, name):
        _added[id(value), name] = value
    return (id(value), name) in _added


def _may_set(value: Any, kind: type, name: str) -> bool:
    own = next((vars(each)[name] for each in plain.mro_of(kind) if name in vars(each)), None)
    if isinstance(own, property) and not name.startswith("_"):
        return own.fset is not None
    return containers.is_data(kind, name) and not callable(containers.state(value).get(name))


#: Private attributes that the program has added to objects of the tests, with these.
_added: dict[tuple[int, str], Any] = {}


def _is_own_class(value: Any) -> bool:
    """Return whether a value is a class of the tests, which is no test."""
    if not isinstance(value, type) or value.__module__ != "tests":
        return False
    return not hasattr(value, "assertEqual")


def _is_open(value: Any) -> bool:
    """Return whether the program may use an object's attributes, unlike those of a function."""
    if isinstance(value, (type, *_NAMED)):
        return False
    where = type(value).__module__
    return where == "tests" or where in _OPEN
