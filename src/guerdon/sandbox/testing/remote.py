"""Objects that live in another process, as they look here.

A class is made for each kind of object, with the special methods that the object's own class has:
so ``len(x)`` of one without a length, or ``x + y`` of one that can't be added, is Python's own
TypeError. What they do is asked of the `Link` that they came by.

Runs inside of a sandbox too: the standard library only, and little of it.
"""

from __future__ import annotations

from types import MethodType

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing.plain import mro_of
else:  # inside of a sandbox, where there is no guerdon
    from guerdon_plain import mro_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
    "abs bool bytes call ceil complex contains delitem enter exit float floor format getitem hash "
    "index instancecheck int invert iter len neg next pos repr reversed round setitem str trunc"
)
#: The special methods that reach the other process.
FORWARDED = COMPARISONS | ARITHMETIC | {f"__{name}__" for name in [*_OTHERS.split(), "await"]}
#: Those which give something to be awaited.
AWAITED = frozenset({"__aenter__", "__aexit__", "__anext__"})
FORWARDED |= AWAITED | {"__aiter__"}
#: Those which every class has, and which may tell something of its own.
_ALWAYS = ("__repr__", "__str__")
_DUNDERS = frozenset({"__annotations__", "__dict__", "__doc__", "__name__", "__qualname__"})


class Remote:
    """An object of another process.

    Attributes:
        _guerdon_link: What it is asked by.
        _guerdon_number: Its number there.
        _guerdon_made: Whether the tests made it themselves, of the class that is tested.
        _guerdon_mixed: Whether a plain value went into it.
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
        if name[:2] == name[-2:] == "__" and name not in _DUNDERS:
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

    method.__name__ = method.__qualname__ = name
    return method


def _forward_awaited(name: str) -> Callable[..., Any]:
    async def method(self: Remote, *args: Any) -> Any:
        return self._guerdon_link.operate(self, name, args)

    method.__name__ = method.__qualname__ = name
    return method


def _call(self: Remote, /, *args: Any, **kwargs: Any) -> Any:
    return self._guerdon_link.call(self, args, kwargs)


def _contains(self: Remote, item: Any) -> bool:
    return bool(self._guerdon_link.contains(self, item))


def _get(self: Any, owner: Any, kind: Any = None) -> Any:
    return self if owner is None else MethodType(self, owner)


def _await(self: Remote) -> Any:
    yield from ()
    return self._guerdon_link.operate(self, "__await__", ())


_TOLD = {
    name: property(lambda self, name=name: self._guerdon_link.attribute(self, name))  # type: ignore[misc]
    for name in ("__annotations__", "__doc__")
}
_METHODS: dict[str, Any] = {name: _forward(name) for name in FORWARDED}
_METHODS.update({name: _forward_awaited(name) for name in AWAITED})
_METHODS.update(__call__=_call, __await__=_await)
_classes: dict[tuple[str, frozenset[str]], type[Remote]] = {}


def remote_class(name: str, methods: frozenset[str]) -> type[Remote]:
    """The class here of objects whose class there has a name and special methods.

    Args:
        name: What it is called there.
        methods: Some of `FORWARDED`.
    """
    known = _classes.get((name, methods))
    if known is None:
        body: dict[str, Any] = {method: _METHODS[method] for method in methods}
        body["__slots__"] = ()
        body.update(_TOLD)  # else they would be the class's own
        if "__iter__" in methods:
            body.setdefault("__contains__", _contains)
        if name == "function":
            body["__get__"] = _get  # it may stand in a class of the tests
        if "__eq__" in methods and "__hash__" not in methods:
            body["__hash__"] = None
        known = _classes[name, methods] = type(name, (Remote,), body)
    return known


_kinds: dict[int, tuple[type, list[Any]]] = {}


def kind_of(value: Any) -> list[Any]:
    """What another process is told of an object's class: its name and special methods."""
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
        known = _kinds[id(kind)] = (kind, [kind.__name__[:100], sorted(methods.union(_ALWAYS))])
    return known[1]
