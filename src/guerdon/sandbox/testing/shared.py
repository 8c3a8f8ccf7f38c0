"""Classes that the starter defines, and the program too: their objects travel by value.

What travels is data: the names and values of attributes, the items of a namedtuple, the name of a
member. Each side puts it into an object of its own class of that name, and runs no code for that.

Runs inside of a sandbox too: the standard library only, and little of it.
"""

from __future__ import annotations

from types import MemberDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import plain
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_plain as plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

__all__ = ["Shared"]


class Shared:
    """The classes of a module that another process has as well.

    Attributes:
        kinds: What objects of a class are: ``member``, ``record``, ``error``, or ``object``.
        named: The classes by their names.
    """

    def __init__(self) -> None:
        self.kinds: dict[type, str] = {}
        self.named: dict[str, type] = {}

    def fill(self, module: Mapping[str, Any], names: Iterable[Any]) -> dict[str, str]:
        """Take those of some names that are classes of a module; returns what they are."""
        self.kinds, self.named = {}, {}
        for name in names:
            found = module.get(name) if type(name) is str else None
            if isinstance(found, type) and found.__module__ == module["__name__"]:
                kind = _kind_of(found)
                if kind:
                    self.kinds[found], self.named[name] = kind, found
        return {name: self.kinds[found] for name, found in self.named.items()}

    def name_of(self, value: Any) -> str:
        """What the class of an object is called."""
        return next(name for name, kind in self.named.items() if kind is type(value))

    def blank(self, name: Any) -> Any:
        """An object without attributes."""
        kind = self._found(name, "object")
        return object.__new__(kind)

    def record(self, name: Any, items: list[Any]) -> Any:
        """A namedtuple."""
        kind: Any = self._found(name, "record")
        plain.expect(len(items) == len(kind._fields), "no such namedtuple")
        return tuple.__new__(kind, items)

    def member(self, name: Any, member: Any) -> Any:
        """A member of an enumeration."""
        kind: Any = self._found(name, "member")
        plain.expect(type(member) is str and member in kind.__members__, "no member")
        return kind.__members__[member]

    def _found(self, name: Any, what: str) -> type:
        found = self.named.get(name) if type(name) is str else None
        plain.expect(found is not None and self.kinds[found] == what, "no class of that name")
        assert found is not None
        return found


def _kind_of(kind: Any) -> str:
    """What objects of a class are; empty where they stay where they are."""
    mro = plain.mro_of(kind)
    if BaseException in mro:
        return "error" if issubclass(kind, Exception) else ""
    if hasattr(kind, "__members__"):
        return "member"
    if tuple in mro:
        return "record" if hasattr(kind, "_fields") else ""
    if kind.__new__ is not object.__new__ or kind.__flags__ & _ABSTRACT or kind.__basicsize__ > 999:
        return ""
    if not hasattr(kind, "__dataclass_fields__") and any(map(_acts, mro[:-1])):
        return ""
    try:
        object.__new__(kind)
    except TypeError:
        return ""
    return "object"


_ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT


def _acts(kind: type) -> bool:
    """Whether a class has methods: its objects may keep to themselves what they are made of."""
    return any(
        callable(value) or (hasattr(type(value), "__get__") and type(value) not in _PLAIN)
        for name, value in vars(kind).items()
        if name in _ACTING or not name.startswith("_")
    )


_ACTING = frozenset(
    {"__call__", "__enter__", "__getattr__", "__getattribute__", "__next__", "__aenter__"}
)
_PLAIN = (MemberDescriptorType, staticmethod, classmethod)  # other ways to make one
