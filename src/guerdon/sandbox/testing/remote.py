"""Objects that live in another process, as they are used here.

A class is made for each kind of object, with the special methods that the object's own class has.
So ``len(x)`` of an object without a length, or ``x + y`` of one that can't be added, is Python's
own TypeError. The methods ask the `Link` that the object came by.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from types import (
    AsyncGeneratorType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
)
from typing import Any

from .containers import CONTAINERS
from .plain import BASES, mro_of

COMPARISONS = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})
_OPERATORS = "add and divmod floordiv lshift matmul mod mul or pow rshift sub truediv xor"
ARITHMETIC = frozenset(
    f"__{before}{name}__"
    for name in _OPERATORS.split()
    for before in ("", "r", "i")
    if (before, name) != ("i", "divmod")
)
_OTHERS = (
    "abs aiter await bool bytes call ceil complex contains delete delitem enter exit float floor "
    "format get getitem hash index instancecheck int invert iter len missing neg next pos repr "
    "reversed round set set_name setitem str subclasscheck trunc"
)
#: Those that return something to be awaited.
AWAITED = frozenset({"__aenter__", "__aexit__", "__anext__"})
#: The special methods that reach the other process.
FORWARDED = COMPARISONS | ARITHMETIC | AWAITED | {f"__{name}__" for name in _OTHERS.split()}
MADE, CALLED = 1, 2
#: What `inspect` reads of a function.
SIGNATURE = frozenset({"__annotations__", "__code__", "__defaults__", "__kwdefaults__"})
_DESCRIPTIONS = (
    "abstractmethods bases dict doc init members mro name qualname slots subclasses wrapped"
)
#: Special attributes that are asked for; all others are missing.
_ATTRIBUTES = SIGNATURE | {f"__{name}__" for name in _DESCRIPTIONS.split()}
#: The built-in classes that objects say they have, for ``isinstance``.
_BUILTINS: dict[str, type] = {
    kind.__name__: kind
    for kind in (FunctionType, GeneratorType, AsyncGeneratorType, CoroutineType, property, type)
}
#: Modules whose classes objects don't say they have: the methods of plain values trust such ones.
_VALUES = frozenset(
    {"array", "collections", "datetime", "decimal", "fractions", "ipaddress", "numbers"}
    | {"pathlib", "types", "uuid", "xml.etree.ElementTree", "zoneinfo"}
)


class Remote:
    """An object of another process.

    Attributes:
        _guerdon_link: The `Link` that asks the other process.
        _guerdon_number: Its number there.
        _guerdon_made: Whether the tests made it: `MADE` from what they had made, `CALLED` by a
            call of the class that is tested.
        _guerdon_mixed: Whether it was made of a plain value.
        _guerdon_overrides: The names of methods of plain values that its class there overrides.
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
    _guerdon_overrides: frozenset[str] = frozenset()

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
        raise TypeError(f"a test can't pickle an object of the program: {type(self).__name__!r}")


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Remote, *args: Any) -> Any:
        return self._guerdon_link.operate(self, name, args)

    async def awaited(self: Remote, *args: Any) -> Any:
        return await self._guerdon_link.wait(self, name, args)

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
    return self._guerdon_link.wait(self, "__await__", ()).__await__()


_METHODS: dict[str, Any] = {name: _forward(name) for name in FORWARDED}
_METHODS.update(__call__=_call, __await__=_await)
_classes: dict[Any, type[Remote]] = {}


def class_of(described: Any) -> type[Remote]:
    """Return the class here for objects of a class there, as `kind_of` describes it."""
    name, methods, bases, overrides = described
    methods, overrides = frozenset(methods), frozenset(overrides)
    bases = tuple((str(module), str(each)) for module, each in bases)
    key = name, methods, bases, overrides
    known = _classes.get(key)
    if known is None:
        body: dict[str, Any] = {method: _METHODS[method] for method in methods}
        body.update(__slots__=(), _guerdon_overrides=overrides)
        if bases:
            body["__class__"] = property(lambda self: _class_here(type(self), bases))
        if "__next__" in methods:
            body["__copy__"] = property()  # `tee` would copy it
        for each in ("__annotations__", "__doc__"):  # otherwise they would be this class's own
            body[each] = property(lambda self, each=each: self._guerdon_link.attribute(self, each))  # type: ignore[misc]
        if ("builtins", "type") in bases:  # a class, which may be generic
            body.setdefault("__getitem__", lambda self, kinds: self)
            body.setdefault("__iter__", None)
        if "__iter__" in methods:
            body.setdefault("__contains__", _contains)
        if name == "function":
            body["__get__"] = _get  # it may be a method of a class of the tests
        if "__eq__" in methods and "__hash__" not in methods:
            body["__hash__"] = None
        known = _classes[key] = type(name, (Remote,), body)
    return known


_derived: dict[Any, type] = {}
_values: dict[int, Any] = {}


def derived(value: Any, handle: Remote) -> Any:
    """Return a value of a class of the other process that derives from a plain one.

    It is the plain value; only what plain values lack is asked for, and, of an object that the
    tests have made, what its class overrides.

    Args:
        value: The plain value.
        handle: The object there.
    """
    is_container = isinstance(value, CONTAINERS)
    if not is_container and id(handle) in _values:  # such as a member of an enumeration
        return _values[id(handle)]
    base, kind = type(value), type(handle)
    if (base, kind) not in _derived:
        body = {
            "_guerdon_derived": True,
            "__getattr__": _lacking,
            "__setattr__": lambda self, name, value: setattr(self._guerdon_handle, name, value),
            "__reduce_ex__": lambda self, protocol: base(self).__reduce_ex__(protocol),
            "__hash__": base.__hash__,
        }
        for name in (vars(kind).keys() & FORWARDED - _CONVERSIONS) | kind._guerdon_overrides:
            body[name] = _either(name, getattr(base, name, None))
        _derived[base, kind] = type(kind.__name__, (base,), body)
    made = base.__new__(_derived[base, kind], *(() if is_container else (value,)))
    if isinstance(made, deque):
        made.__init__(maxlen=value.maxlen)  # type: ignore[misc]
    object.__setattr__(made, "_guerdon_handle", handle)
    if not is_container:
        _values[id(handle)] = made
    return made


#: What a derived value does as the plain one.
_CONVERSIONS = frozenset({"__hash__", "__int__", "__index__", "__float__", "__complex__"})


def _lacking(self: Any, name: str) -> Any:
    """Read an attribute that a plain value lacks."""
    # Such as `__deepcopy__`, as a copy is the plain value; an instance that a test makes has none.
    if name.startswith("__") or name == "_guerdon_handle":
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    return getattr(self._guerdon_handle, name)


def _either(name: str, plain: Any) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        handle = self._guerdon_handle
        is_asked = plain is None or handle._guerdon_made
        if is_asked and name in COMPARISONS:
            is_asked = is_remote(args[0])
        if not is_asked:
            return plain(self, *args, **kwargs)
        found = getattr(type(handle), name, None) if name in FORWARDED else None
        return found(handle, *args) if found else getattr(handle, name)(*args, **kwargs)

    return method


def is_derived(kind: type) -> bool:
    """Return whether a class is one of those that `derived` makes."""
    return "_guerdon_derived" in vars(kind)


def is_remote(value: Any) -> bool:
    """Return whether a value is an object of the other process, also one with a plain value."""
    return Remote in mro_of(type(value)) or is_derived(type(value))


def _class_here(kind: type, bases: Any) -> type:
    """Return the first class of Python that a class there derives from."""
    for module, name in bases:
        found: Any = _BUILTINS if module == "builtins" else vars(sys.modules.get(module, object))
        found = None if module in _VALUES else found.get(name)
        if isinstance(found, type):
            return found
    return kind


def handle_of(value: Any) -> Remote | None:
    """Return the object of the other process that a value stands for; None if there is none."""
    if is_derived(type(value)):
        return value._guerdon_handle  # type: ignore[no-any-return]
    return value if Remote in mro_of(type(value)) else None


_kinds: dict[int, tuple[type, list[Any]]] = {}


def kind_of(value: Any) -> list[Any]:
    """Return what another process receives about an object's class.

    Its name, its special methods, the classes of Python that it derives from, and the names of
    other methods of plain values that it overrides.
    """
    kind = type(value)
    known = _kinds.get(id(kind))
    if known is None:
        own = _own_attributes(kind)
        plain = next((each for each in BASES if each in mro_of(kind)), object)
        found = {name: own[name] for name in FORWARDED.intersection(own)}
        if found.get("__eq__") is not None and kind.__hash__ is not None:
            found.setdefault("__hash__", kind.__hash__)
        # Every class has the last two, and may have its own.
        methods = {name for name, method in found.items() if method} | {"__repr__", "__str__"}
        bases = [
            [each.__module__, each.__name__]
            for each in mro_of(kind)[:-1]
            if each.__module__.partition(".")[0] in sys.stdlib_module_names
            and (each.__module__ != "builtins" or each.__name__ in _BUILTINS)
        ]
        overrides = [name for name in own if name in vars(plain) and name[:1] != "_"]
        described = [kind.__name__[:100], sorted(methods), bases, sorted(overrides)]
        known = _kinds[id(kind)] = kind, described
    return known[1]


def _own_attributes(kind: type) -> dict[str, Any]:
    """Return the attributes of a class and its bases, without those of plain values."""
    own: dict[str, Any] = {}
    for each in mro_of(kind)[:-1]:
        if each not in BASES:
            own = {**type.__dict__["__dict__"].__get__(each), **own}
    return own


for _each in (kind_of, Remote):  # functions and classes, so that a process has their classes
    class_of(kind_of(_each))
