"""Objects that live in another process, as they are used here.

A class is made for each kind of object, with the special methods that the object's own class has.
So ``len(x)`` of an object without a length, or ``x + y`` of one that can't be added, is Python's
own TypeError. The methods ask the `Link` that the object came by.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections import deque
from collections.abc import Callable
from types import (
    AsyncGeneratorType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    new_class,
)
from typing import Any

from .containers import CONTAINERS
from .plain import BASES, mro_of

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
    "Super",
    "derive",
    "derived",
    "handle_of",
    "is_remote",
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
    "abs aiter await bool bytes call ceil complex contains delete delitem enter exit float floor "
    "format get getitem hash index instancecheck int invert iter len missing neg next pos repr "
    "reversed round set set_name setitem str subclasscheck trunc"
)
#: Those that return something to be awaited.
AWAITED = frozenset({"__aenter__", "__aexit__", "__anext__"})
#: The special methods that reach the other process.
FORWARDED = COMPARISONS | ARITHMETIC | AWAITED | {f"__{name}__" for name in _OTHERS.split()}
MOST = 200  # methods of a class that are named
MADE, CALLED = 1, 2
#: What `inspect` reads of a function.
SIGNATURE = frozenset({"__annotations__", "__code__", "__defaults__", "__kwdefaults__"})
_DESCRIPTIONS = (
    "abstractmethods bases dict doc init members mro name qualname slots subclasses wrapped"
)
#: Special attributes that are asked for; all others are missing.
_ATTRIBUTES = SIGNATURE | {f"__{name}__" for name in _DESCRIPTIONS.split()}
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
        return (_DERIVED,)

    def __dir__(self) -> Any:
        return self._guerdon_link.ask("library", self, "builtins.dir")

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
        return _unpickled, (self._guerdon_link.ask("library", self, "pickle.dumps"),)


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


def _unpickled(data: bytes) -> Any:
    """Return an object that the other process has pickled, and now unpickles."""
    found = _links[0].ask("library", None, "pickle.loads", (data,))
    if Remote not in mro_of(type(found)):  # the pickle could change an object of this process
        raise TypeError("a pickle of an object of the program was expected")
    return found


_links: list[Any] = []  # the one that the objects here have come by


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


# Otherwise it would be that of `Method`.
Method.__doc__ = property(lambda self: self._guerdon_found().__doc__)  # type: ignore[assignment]
_METHODS: dict[str, Any] = {name: _forward(name) for name in FORWARDED}
_METHODS.update(__call__=_call, __await__=_await)
_classes: dict[Any, type[Remote]] = {}


def remote_class(
    name: str,
    methods: frozenset[str],
    public: frozenset[str] = frozenset(),
    bases: tuple[Any, ...] = (),
) -> type[Remote]:
    """Return the class here for objects of a class there.

    Args:
        name: The name of the class there.
        methods: Its special methods, of `FORWARDED`.
        public: The names of its other methods.
        bases: The modules and names of the classes of the standard library that it derives from.
    """
    known = _classes.get((name, methods, public, bases))
    if known is None:
        body: dict[str, Any] = {method: _METHODS[method] for method in methods}
        body.update(__slots__=(), _guerdon_methods=public)
        if name in _CLASSES:
            body["__class__"] = property(lambda self: _CLASSES[name])
        elif bases:
            body["__class__"] = property(lambda self: _class_here(type(self), bases))
        if "__next__" in methods:
            body["__copy__"] = property()  # `tee` would copy it
        for each in ("__annotations__", "__doc__"):  # otherwise they would be this class's own
            body[each] = property(lambda self, each=each: self._guerdon_link.attribute(self, each))  # type: ignore[misc]
        if ["builtins", "type"] in map(list, bases):  # a class, which may be generic
            body.setdefault("__getitem__", lambda self, kinds: self)
        if "__iter__" in methods:
            body.setdefault("__contains__", _contains)
        if name == "function":
            body["__get__"] = _get  # it may be a method of a class of the tests
        if "__eq__" in methods and "__hash__" not in methods:
            body["__hash__"] = None
        known = _classes[name, methods, public, bases] = type(name, (Remote,), body)
    return known


class _Deriving(ABCMeta):
    """Makes the class that a test derives from one of the program: in the program's process."""

    def __new__(mcs, name: str, bases: Any, body: dict[str, Any], **named: Any) -> Any:
        originals = body.pop("__orig_bases__")
        cell = body.pop("__classcell__", None)
        items = {key: _described(value) for key, value in body.items()} | {
            "__module__": ("", "program")
        }
        base = next(each for each in originals if handle_of(each) is not None)
        made = base._guerdon_link.derive(base, name, originals, items, named)
        if cell is not None:
            cell.cell_contents = made  # for `super`
        return made


_DERIVED = ABCMeta.__new__(_Deriving, "_DERIVED", (), {})


def _described(value: Any) -> tuple[Any, ...]:
    """Return what a part of the body of a class is made of."""
    if isinstance(value, property):
        return ("property", value.fget, value.fset, value.fdel)
    if type(value) in (staticmethod, classmethod):
        return (type(value).__name__, value.__func__)
    return ("", value)


def derive(bases: Any, name: str, items: dict[str, Any], named: dict[str, Any]) -> type:
    """Return the class that a test derives from classes of the program, in its process."""
    makers: dict[str, Any] = {each.__name__: each for each in (property, staticmethod, classmethod)}
    body = {key: makers[how](*parts) if how else parts[0] for key, (how, *parts) in items.items()}
    return new_class(name, bases, named, lambda names: names.update(body))


class Super:
    """The ``super()`` of a method of such a class.

    Args:
        found: That of the program's process.
    """

    def __init__(self, found: Remote) -> None:
        object.__setattr__(self, "_guerdon_found", found)

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, "_guerdon_found")
        return found._guerdon_link.ask("get", found, name)


def _lacking(self: Any, name: str) -> Any:
    """Read an attribute that a plain value lacks."""
    if name.startswith("__"):  # such as `__deepcopy__`: a copy is one of the plain value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    return getattr(self._guerdon_handle, name)


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
            "__delattr__": lambda self, name: delattr(self._guerdon_handle, name),
            "__reduce_ex__": lambda self, protocol: base(self).__reduce_ex__(protocol),
            "__hash__": base.__hash__,
        }
        for name in (vars(kind).keys() & FORWARDED - _CONVERSIONS) | kind._guerdon_methods:
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


def is_remote(value: Any) -> bool:
    """Return whether a value is an object of the other process, also one with a plain value."""
    kind = type(value)
    return Remote in mro_of(kind) or "_guerdon_derived" in vars(kind)


def _class_here(kind: type, bases: Any) -> type:
    """Return the first class of the standard library that a class there derives from."""
    for module, name in bases:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, ABCMeta):
            found.register(kind)
        elif isinstance(found, type):
            return found
    return kind


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
_BUILTINS = frozenset({"property", "type"})


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
            if each in BASES:
                continue  # what plain values do
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
        where = [
            [each.__module__, each.__qualname__]
            for each in mro_of(kind)[:-1]
            if each.__module__.partition(".")[0] in sys.stdlib_module_names
            and (each.__module__ != "builtins" or each.__name__ in _BUILTINS)
        ]
        if "__getattribute__" in public or issubclass(kind, _NO_METHODS) or len(names) > MOST:
            names = set()
        known = _kinds[id(kind)] = (
            kind,
            [kind.__name__[:100], sorted(methods), sorted(names), where],
        )
    described = known[1]
    attributes = _attributes(value) if described[2] else ()
    if not attributes or attributes.keys().isdisjoint(described[2]):
        return described
    own = sorted({*described[2]}.difference(attributes))
    return [*described[:2], own, described[3]]


def _attributes(value: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found
