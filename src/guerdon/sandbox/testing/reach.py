"""What the program may reach in the tests' process: what it is given, asks for, and may change.

Runs inside of a sandbox: the standard library only, and little of it.
"""

from __future__ import annotations

import sys
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import plain, remote
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_plain as plain
    import guerdon_remote as remote

if TYPE_CHECKING:
    from typing import Any

__all__ = ["global_of", "guard", "may_change", "may_have", "may_read", "methods_of"]

#: Frames, code and modules lead to what the tests know.
_BARRED = (CodeType, FrameType, ModuleType, TracebackType, CellType, MethodWrapperType)
#: What there is but once, by the name that it has in its module.
_NAMED = (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    type,
)
_FEW = "aiter anext await call contains getitem iter len next repr reversed str"
_GIVEN = frozenset(f"__{name}__" for name in _FEW.split())
#: What functions and classes tell of themselves, to a decorator.
_TOLD = frozenset({"__doc__", "__module__", "__name__", "__qualname__"})
#: Where the classes are from whose objects have attributes for the program; the tests' have, too.
#: None of them opens a file by its name, starts a program, or fills in a text of the program.
_MODULES = (
    "_csv _io _queue _random _thread argparse array asyncio.locks asyncio.queues collections "
    "concurrent.futures._base concurrent.futures.thread datetime decimal fractions io ipaddress "
    "logging queue random re threading time types unittest.mock zoneinfo"
)
_OPEN = frozenset(_MODULES.split())
_OWNERS = _OPEN | {"abc", "builtins", "enum", "tests", "typing"}
#: Those of them whose objects are there to be filled.
_FILLED = frozenset({("types", "SimpleNamespace"), ("argparse", "Namespace")})


def global_of(value: Any) -> tuple[str, str] | None:
    """The module and the name of what the standard library defines, where it is a callable.

    The program is sent the name, and finds its own process's: so nothing of the library that is
    handed to it (``reduce``, ``attrgetter``, ``open``) does anything for it among the tests.
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
    """Refuse what the program is never given."""
    if isinstance(value, _BARRED) or (isinstance(value, type) and issubclass(value, remote.Remote)):
        raise TypeError(f"the program is given no {type(value).__name__}")
    mocked = type(value).__module__ == "unittest.mock" and hasattr(value, "__dict__")
    if mocked and isinstance(vars(value).get("_mock_wraps"), ModuleType):
        raise TypeError("the program is given no module, wrapped or not")
    if isinstance(value, BuiltinFunctionType):
        module = value.__self__
        if module is None or isinstance(module, ModuleType):
            raise TypeError(f"the program is given no {value.__qualname__}")


def guard(table: Any) -> None:
    """Refuse what holds the names of a module."""
    if dict.__contains__(table, "__builtins__") or dict.__contains__(table, "__loader__"):
        raise TypeError("the program is given no module's names")


def methods_of(value: Any, methods: list[str]) -> list[str]:
    """Those special methods that the program may call."""
    if _is_open(value) or type(value).__name__ == "KeyWrapper":  # of functools.cmp_to_key
        return methods
    return sorted(_GIVEN.intersection(methods))


def may_read(value: Any, name: str) -> bool:
    """Whether the program may read an attribute."""
    if name in _TOLD:
        told = getattr(value, name, None) if callable(value) else ()
        return told is None or type(told) is str
    if not _is_open(value) or name.startswith("_"):
        return False
    # A class of the tests may derive from one that could do something for the program.
    owner = next((each for each in plain.mro_of(type(value)) if name in vars(each)), None)
    return owner is None or owner.__module__ in _OWNERS


def may_change(value: Any, name: str) -> bool:
    """Whether the program may set or delete an attribute: data, and nothing of what its type does.

    Methods and what is callable decide over a test; the program would put its own there.
    """
    where = (type(value).__module__, type(value).__name__)
    filled = where[0] in ("tests", "unittest.mock") or where in _FILLED
    if not _is_open(value) or name.startswith("_") or not filled:
        return False
    for each in plain.mro_of(type(value)):
        own = vars(each)
        if name in own:
            if isinstance(own[name], property):
                return own[name].fset is not None
            if not isinstance(own[name], MemberDescriptorType):
                return not callable(own[name]) and not hasattr(type(own[name]), "__get__")
            break
    try:
        return not callable(object.__getattribute__(value, name))
    except AttributeError:
        return True


def _is_open(value: Any) -> bool:
    """Whether the program may use an object's attributes: it is no function, class or iterator."""
    if isinstance(value, (type, *_NAMED)):
        return False
    where = type(value).__module__
    return where == "tests" or where in _OPEN
