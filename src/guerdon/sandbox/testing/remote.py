"""Objects that live in another process, as they are used here.

A class is made for each kind of object, with the special methods that the object's own class has.
So ``len(x)`` of an object without a length, or ``x + y`` of one that can't be added, is Python's
own TypeError. The methods ask the `Link` that the object came by.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import (
    AsyncGeneratorType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

from .containers import CONTAINERS
from .plain import mro_of

__all__ = [
    "ARITHMETIC",
    "AWAITED",
    "CALLED",
    "COMPARISONS",
    "FORWARDED",
    "MADE",
    "Method",
    "Remote",
    "SIGNATURE",
    "derived",
    "handle_of",
    "kind_of",
    "remote_class",
]

COMPARISONS = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})
_OPERATORS = "add and divmod floordiv lshift matmul mod mul or pow rshift sub truediv xor"
ARITHMETIC = frozenset(
    f"__{before}{name}__"
    for name in _OPERATORS.split()
    for before in ("", "r", "i")
    if (before, name) != ("i", "divmod")
)
_OTHERS = (
    "abs aiter await bool bytes call ceil complex contains delitem enter exit float floor format "
    "getitem hash index instancecheck int invert iter len missing neg next pos repr reversed round "
    "setitem str trunc"
)
#: Those that return something to be awaited.
AWAITED = frozenset({"__aenter__", "__aexit__", "__anext__"})
#: The special methods that reach the other process.
FORWARDED = COMPARISONS | ARITHMETIC | AWAITED | {f"__{name}__" for name in _OTHERS.split()}
MOST = 200  # methods of a class that are named
MADE, CALLED = 1, 2
#: What `inspect` reads of a function.
SIGNATURE = frozenset({"__annotations__", "__code__", "__defaults__", "__kwdefaults__"})
#: Special attributes that are asked for; all others are missing.
_ATTRIBUTES = SIGNATURE | {"__dict__", "__doc__", "__name__", "__qualname__", "__wrapped__"}
#: The classes that objects say they have: for ``isinstance``, and so for `inspect`.
_CLASSES = {
    "function": FunctionType,
    "generator": GeneratorType,
    "async_generator": AsyncGeneratorType,
    "coroutine": CoroutineType,
}


class Remote:
    """An object of another process.

    Attributes:
        _guerdon_link: The `Link` that asks the other process.
        _guerdon_number: Its number there.
        _guerdon_made: Whether the tests made it: `MADE` from what they had made, `CALLED` by a
            call of the class that is tested.
        _guerdon_mixed: Whether it was made of a plain value.
        _guerdon_methods: The names of the methods of its class there.
    """

    __slots__ = (
        "__weakref__",
        "_guerdon_link",
        "_guerdon_made",
        "_guerdon_mixed",
        "_guerdon_number",
    )
    _guerdon_link: Any
    _guerdon_number: int
    _guerdon_made: int
    _guerdon_mixed: bool
    _guerdon_methods: frozenset[str] = frozenset()

    def __init__(self, link: Any, number: int) -> None:
        object.__setattr__(self, "_guerdon_link", link)
        object.__setattr__(self, "_guerdon_number", number)
        object.__setattr__(self, "_guerdon_made", 0)
        object.__setattr__(self, "_guerdon_mixed", False)

    def __mro_entries__(self, bases: Any) -> Any:
        raise TypeError("a test can't derive a class from one of the program")

    def __getattr__(self, name: str) -> Any:
        if name[:2] == name[-2:] == "__" and name not in _ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._guerdon_link.attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._guerdon_link.ask("set", self, name, (value,))

    def __delattr__(self, name: str) -> None:
        self._guerdon_link.ask("del", self, name)

    def __copy__(self) -> Any:
        return self._guerdon_link.ask("copy", self, "copy")

    def __deepcopy__(self, known: Any) -> Any:
        return self._guerdon_link.ask("copy", self, "deepcopy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"an object of another process can't be copied: {type(self).__name__!r}")


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Remote, *args: Any) -> Any:
        return self._guerdon_link.operate(self, name, args)

    async def awaited(self: Remote, *args: Any) -> Any:
        return self._guerdon_link.operate(self, name, args)

    made = awaited if name in AWAITED else method
    made.__name__ = made.__qualname__ = name
    return made


def _call(self: Remote, /, *args: Any, **kwargs: Any) -> Any:
    return self._guerdon_link.call(self, args, kwargs)


def _contains(self: Remote, item: Any) -> bool:
    return bool(self._guerdon_link.contains(self, item))


def _get(self: Any, owner: Any, kind: Any = None) -> Any:
    return self if owner is None else MethodType(self, owner)


def _await(self: Remote) -> Any:
    yield from ()
    return self._guerdon_link.operate(self, "__await__", ())


class Method:
    """A method of an object of another process: a call of it is one message.

    Args:
        target: The object.
        name: The name of the method.
    """

    def __init__(self, target: Remote, name: str) -> None:
        self._guerdon_target = target
        self.__name__ = name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        target = self._guerdon_target
        return target._guerdon_link.call(target, args, kwargs, self.__name__)

    def __getattr__(self, name: str) -> Any:
        if name[:2] == name[-2:] == "__" and name not in _ATTRIBUTES:
            raise AttributeError(f"'method' object has no attribute {name!r}")
        return getattr(self._guerdon_found(), name)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Method):
            mine = self._guerdon_target, self.__name__
            return mine == (other._guerdon_target, other.__name__)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __repr__(self) -> str:
        return f"<bound method {type(self._guerdon_target).__name__}.{self.__name__}>"

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for ``isinstance``
        return MethodType

    def _guerdon_found(self) -> Any:
        """Return the method as an object of its own."""
        target = self._guerdon_target
        return target._guerdon_link.ask("get", target, self.__name__)


_METHODS: dict[str, Any] = {name: _forward(name) for name in FORWARDED}
_METHODS.update(__call__=_call, __await__=_await)
_classes: dict[Any, type[Remote]] = {}


def remote_class(
    name: str, methods: frozenset[str], public: frozenset[str] = frozenset()
) -> type[Remote]:
    """Return the class here for objects of a class there.

    Args:
        name: The name of the class there.
        methods: Its special methods, of `FORWARDED`.
        public: The names of its other methods.
    """
    known = _classes.get((name, methods, public))
    if known is None:
        body: dict[str, Any] = {method: _METHODS[method] for method in methods}
        body.update(__slots__=(), _guerdon_methods=public)
        if name in _CLASSES:
            body["__class__"] = property(lambda self: _CLASSES[name])
        for each in ("__annotations__", "__doc__"):  # otherwise they would be this class's own
            body[each] = property(lambda self, each=each: self._guerdon_link.attribute(self, each))  # type: ignore[misc]
        if "__iter__" in methods:
            body.setdefault("__contains__", _contains)
        if name == "function":
            body["__get__"] = _get  # it may be a method of a class of the tests
        if "__eq__" in methods and "__hash__" not in methods:
            body["__hash__"] = None
        known = _classes[name, methods, public] = type(name, (Remote,), body)
    return known


_derived: dict[Any, type] = {}


def derived(value: Any, handle: Remote) -> Any:
    """Return a value of a class of the other process that derives from a plain one.

    It is the plain value; only what plain values lack is asked for.

    Args:
        value: The plain value.
        handle: The object there.
    """
    base = type(value)
    key = base, type(handle).__name__
    if key not in _derived:
        body = {
            "_guerdon_derived": True,
            "__getattr__": lambda self, name: getattr(self._guerdon_handle, name),
            "__reduce_ex__": lambda self, protocol: base(self).__reduce_ex__(protocol),
        }
        if issubclass(base, dict) and "__missing__" in type(handle).__dict__:
            body["__missing__"] = lambda self, key: self._guerdon_handle[key]
        _derived[key] = type(key[1], (base,), body)
    made = base.__new__(_derived[key], *(() if isinstance(value, CONTAINERS) else (value,)))
    if isinstance(made, deque):
        made.__init__(maxlen=value.maxlen)  # type: ignore[misc]
    made._guerdon_handle = handle
    return made


def handle_of(value: Any) -> Remote | None:
    """Return the object of the other process that a value stands for; None if there is none."""
    kind = type(value)
    if "_guerdon_derived" in vars(kind):
        return value._guerdon_handle  # type: ignore[no-any-return]
    if kind is Method:
        return value._guerdon_found()  # type: ignore[no-any-return]
    return value if Remote in mro_of(kind) else None


_kinds: dict[int, tuple[type, list[Any]]] = {}
_NO_METHODS = (type, ModuleType)


def kind_of(value: Any) -> list[Any]:
    """Return what another process receives about an object's class.

    Its name, its special methods, and the names of its other methods that are plain functions.
    """
    kind = type(value)
    known = _kinds.get(id(kind))
    if known is None:
        found: dict[str, Any] = {}
        public: dict[str, Any] = {}
        for each in mro_of(kind)[:-1]:
            own = type.__dict__["__dict__"].__get__(each)
            for name in FORWARDED.intersection(own):
                found.setdefault(name, own[name])
            for name in own:
                public.setdefault(name, own[name])
        if found.get("__eq__") is not None and kind.__hash__ is not None:
            found.setdefault("__hash__", kind.__hash__)
        methods = {name for name, method in found.items() if method is not None}
        # Every class has these two, and may have its own.
        methods |= {"__repr__", "__str__"}
        names = {
            name
            for name, method in public.items()
            if type(method) is FunctionType and name.isidentifier() and not name.startswith("_")
        }
        if "__getattribute__" in public or issubclass(kind, _NO_METHODS) or len(names) > MOST:
            names = set()
        known = _kinds[id(kind)] = (kind, [kind.__name__[:100], sorted(methods), sorted(names)])
    described = known[1]
    attributes = _attributes(value) if described[2] else ()
    if not attributes or attributes.keys().isdisjoint(described[2]):
        return described
    return [*described[:2], sorted({*described[2]}.difference(attributes))]


def _attributes(value: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found
