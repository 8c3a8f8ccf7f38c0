"""Objects that live in another process, as they are used here.

A class is made for each kind of object, with the special methods that the object's own class has.
So ``len(x)`` of an object without a length, or ``x + y`` of one that can't be added, is Python's
own TypeError. The methods ask the `Link` that the object came by.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from .plain import mro_of

__all__ = ["ARITHMETIC", "AWAITED", "COMPARISONS", "FORWARDED", "Remote", "kind_of", "remote_class"]

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
    "getitem hash index instancecheck int invert iter len neg next pos repr reversed round setitem "
    "str trunc"
)
#: Those that return something to be awaited.
AWAITED = frozenset({"__aenter__", "__aexit__", "__anext__"})
#: The special methods that reach the other process.
FORWARDED = COMPARISONS | ARITHMETIC | AWAITED | {f"__{name}__" for name in _OTHERS.split()}
#: Special attributes that are asked for; all others are missing.
_ATTRIBUTES = frozenset({"__annotations__", "__dict__", "__doc__", "__name__", "__qualname__"})


class Remote:
    """An object of another process.

    Attributes:
        _guerdon_link: The `Link` that asks the other process.
        _guerdon_number: Its number there.
        _guerdon_made: Whether the tests made it themselves, of the class that is tested.
        _guerdon_mixed: Whether it was made of a plain value.
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
    _guerdon_made: bool
    _guerdon_mixed: bool

    def __init__(self, link: Any, number: int) -> None:
        object.__setattr__(self, "_guerdon_link", link)
        object.__setattr__(self, "_guerdon_number", number)
        object.__setattr__(self, "_guerdon_made", False)
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


_METHODS: dict[str, Any] = {name: _forward(name) for name in FORWARDED}
_METHODS.update(__call__=_call, __await__=_await)
_classes: dict[tuple[str, frozenset[str]], type[Remote]] = {}


def remote_class(name: str, methods: frozenset[str]) -> type[Remote]:
    """Return the class here for objects of a class there.

    Args:
        name: The name of the class there.
        methods: Its special methods, of `FORWARDED`.
    """
    known = _classes.get((name, methods))
    if known is None:
        body: dict[str, Any] = {method: _METHODS[method] for method in methods}
        body["__slots__"] = ()
        for each in ("__annotations__", "__doc__"):  # otherwise they would be this class's own
            body[each] = property(lambda self, each=each: self._guerdon_link.attribute(self, each))  # type: ignore[misc]
        if "__iter__" in methods:
            body.setdefault("__contains__", _contains)
        if name == "function":
            body["__get__"] = _get  # it may be a method of a class of the tests
        if "__eq__" in methods and "__hash__" not in methods:
            body["__hash__"] = None
        known = _classes[name, methods] = type(name, (Remote,), body)
    return known


_kinds: dict[int, tuple[type, list[Any]]] = {}


def kind_of(value: Any) -> list[Any]:
    """Return what another process receives about an object's class: name and special methods."""
    kind = type(value)
    known = _kinds.get(id(kind))
    if known is None:
        found: dict[str, Any] = {}
        for each in mro_of(kind)[:-1]:
            own = type.__dict__["__dict__"].__get__(each)
            for name in FORWARDED.intersection(own):
                found.setdefault(name, own[name])
        if found.get("__eq__") is not None and kind.__hash__ is not None:
            found.setdefault("__hash__", kind.__hash__)
        methods = {name for name, method in found.items() if method is not None}
        # Every class has these two, and may have its own.
        methods |= {"__repr__", "__str__"}
        known = _kinds[id(kind)] = (kind, [kind.__name__[:100], sorted(methods)])
    return known[1]
