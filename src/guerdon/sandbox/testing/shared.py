"""Classes that both the starter and the program define: their objects travel by value.

The names and values of attributes travel, the items of a namedtuple, or the name of a member. Each
side puts them into an object of its own class of that name, without running its code.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MemberDescriptorType
from typing import Any

from . import plain


class Shared:
    """The classes of a module that another process has as well.

    Attributes:
        kinds: What their objects are: ``member``, ``record``, ``error``, or ``object``.
        named: The classes by their names.
    """

    def __init__(self) -> None:
        self.kinds: dict[type, str] = {}
        self.named: dict[str, type] = {}

    def fill(self, module: Mapping[str, Any], names: Iterable[Any]) -> dict[str, str]:
        """Take those names that are classes of a module, and return what their objects are."""
        self.kinds, self.named = {}, {}
        for name in names:
            found = module.get(name) if type(name) is str else None
            if isinstance(found, type) and found.__module__ == module["__name__"]:
                kind = _kind_of(found)
                if kind:
                    self.kinds[found], self.named[name] = kind, found
        return {name: self.kinds[found] for name, found in self.named.items()}

    def name_of(self, value: Any) -> str:
        """Return the name of an object's class."""
        return next(name for name, kind in self.named.items() if kind is type(value))

    def get(self, name: Any, what: str) -> Any:
        """Return the class of a name if its objects are ``what``; None otherwise."""
        found = self.named.get(name) if type(name) is str else None
        return found if found is not None and self.kinds[found] == what else None

    def blank(self, name: Any) -> Any:
        """Return an object without attributes."""
        return object.__new__(self._class(name, "object"))

    def record(self, name: Any, items: list[Any]) -> Any:
        """Return a namedtuple."""
        kind = self._class(name, "record")
        plain.expect(len(items) == len(kind._fields), "a namedtuple of another length")
        return tuple.__new__(kind, items)

    def member(self, name: Any, member: Any) -> Any:
        """Return a member of an enumeration."""
        members = self._class(name, "member").__members__
        plain.expect(type(member) is str and member in members, "an unknown member")
        return members[member]

    def _class(self, name: Any, what: str) -> Any:
        found = self.get(name, what)
        plain.expect(found is not None, "an unknown class")
        return found


def _kind_of(kind: Any) -> str:
    """Return what objects of a class are; empty if they don't travel."""
    mro = plain.mro_of(kind)
    if BaseException in mro:
        return "error" if issubclass(kind, Exception) else ""
    if hasattr(kind, "__members__"):
        return "member"
    if tuple in mro:
        return "record" if hasattr(kind, "_fields") else ""
    if kind.__new__ is not object.__new__:
        return ""
    if not hasattr(kind, "__dataclass_fields__") and any(map(_has_methods, mro[:-1])):
        return ""
    try:
        object.__new__(kind)
    except TypeError:  # it is abstract
        return ""
    return "object"


def _has_methods(kind: type) -> bool:
    """Return whether a class has methods: its objects may protect what they consist of."""
    return any(
        callable(value) or (hasattr(type(value), "__get__") and type(value) not in _CONSTRUCTORS)
        for name, value in vars(kind).items()
        if name in _SPECIAL or not name.startswith("_")
    )


_SPECIAL = frozenset(
    {"__call__", "__enter__", "__getattr__", "__getattribute__", "__next__", "__aenter__"}
)
_CONSTRUCTORS = (MemberDescriptorType, staticmethod, classmethod)  # they may construct an object
