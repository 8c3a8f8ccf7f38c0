"""Plain values on a wire: a flat table of nodes in JSON, with cycles and any depth.

The decoder makes nothing else of a message: no pickle, and no names but those of `plain.NAMES`.

A node is a list of a tag and its data. None, booleans, floats, integers of 64 bits and texts are
written as they are. Everything else is referred to by the number of its node, in a list of its own:
``[3]``. ``[-1 - k]`` is node ``k`` of the message that is answered, so that an argument that is
returned is the same object.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import plain
from .shared import Shared

__all__ = ["Decoder", "Encoder", "index_of", "is_changing"]

DEEPEST = 2000  # levels of values that can't be changed: the interpreter hashes them recursively
LEAVES = frozenset({"bytes", "global", "int", "member", "mine", "name", "str", "yours"})


def is_changing(tag: Any) -> bool:
    """Return whether the value of a node with a tag can be changed."""
    return tag in plain.EMPTY or tag == "object"


def index_of(number: Any, table: Sequence[Any]) -> int:
    """Return a received number if it is an index of a table."""
    plain.expect(type(number) is int and 0 <= number < len(table), "a number out of range")
    return int(number)


def _sendable(text: str) -> bool:
    """Return whether JSON keeps a text: it would join two lone surrogates to one character."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Encoder:
    """Turns values into nodes.

    Args:
        export: Returns the node of an object that has no plain value.
        guard: Raises for dictionaries that may not be sent.
        shared: The classes that the other side has, too.
        stays: A class whose objects aren't sent, even if they are containers or numbers.
        copies: Whether values of the standard library that can be changed travel as copies.
        known: The nodes of the message that is answered, by the `id` of their objects.

    Attributes:
        nodes: The table.
        objects: The object of each node.
    """

    def __init__(
        self,
        export: Callable[[Any], list[Any]],
        *,
        guard: Callable[[Any], None] = lambda table: None,
        shared: Shared | None = None,
        stays: type | None = None,
        copies: bool = False,
        known: dict[int, int] | None = None,
    ) -> None:
        self._export = export
        self._guard = guard
        self._shared = shared or Shared()
        self._stays = stays
        self._copies = copies
        self._known = known or {}
        self.nodes: list[Any] = []
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._done = 0

    def value(self, value: Any) -> Any:
        """Encode a value: return its reference, and add nodes for all that it contains."""
        reference = self._reference(value)
        self._finish()
        return reference

    def node(self, value: Any) -> list[Any]:
        """Return a node for a container of the message that is answered, with its contents."""
        node = self._node(value)
        self._finish()
        return node

    def _finish(self) -> None:
        while self._done < len(self.nodes):  # no recursion: lists may be nested to any depth
            self.nodes[self._done] = self._node(self.objects[self._done])
            self._done += 1

    def _stays_here(self, kind: type) -> bool:
        return self._stays is not None and self._stays in plain.mro_of(kind)

    def _reference(self, value: Any) -> Any:
        kind = type(value)
        if kind not in _EXACT and kind not in plain.ATOMS and kind not in self._shared.kinds:
            mro = plain.mro_of(kind)
            base = next((base for base in _CONVERTED if base in mro), None)
            if base is not None and not self._stays_here(kind):
                value, kind = _CONVERTED[base](value), base
        is_atom = kind in plain.ATOMS
        if kind is int:
            is_atom = -plain.SMALL <= value < plain.SMALL
        elif kind is str:
            is_atom = _sendable(value)
        if is_atom:
            return value
        key = id(value)
        if key in self._known:
            return [-1 - self._known[key]]
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.nodes)
            self.nodes.append(None)
            self.objects.append(value)
        return [number]

    def _references(self, items: Iterable[Any]) -> list[Any]:
        values = list(items)
        kinds = set(map(type, values))
        # A million numbers are checked by C alone.
        if kinds <= {int, bool}:
            if not values or -plain.SMALL <= min(values) <= max(values) < plain.SMALL:
                return values
        elif kinds <= {float, bool, type(None)} or (kinds == {str} and _sendable("".join(values))):
            return values
        return [self._reference(value) for value in values]

    def _node(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind not in _EXACT:
            if self._stays_here(kind):
                return self._export(value)
            if kind in self._shared.kinds and (node := self._shared_node(value)) is not None:
                return node
            mro = plain.mro_of(kind)
            kind = next((base for base in plain.BASES if base in mro), kind)
        if kind in _NODES:
            return [kind.__name__, *_NODES[kind](self, value, kind)]
        if kind is tuple:
            return self._tuple_node(value)
        if (name := plain.NAMED.get(id(value))) is not None:
            return ["name", name]
        if (parts := plain.parts_of(value, kind, copies=self._copies)) is not None:
            return [parts[0], self._references(parts[1])]
        if (name := plain.error_name(kind)) is not None:
            return ["error", name, self._references(value.args)]
        return self._export(value)

    def _shared_node(self, value: Any) -> list[Any] | None:
        """Return the node of an object of a class that the other side has, too."""
        name, what = self._shared.name_of(value), self._shared.kinds[type(value)]
        if what == "record":
            return ["record", name, self._references(tuple.__iter__(value))]
        if what == "member" and value.name in type(value).__members__:
            return ["member", name, value.name]
        if what == "object" and plain.is_open(value):
            state = plain.state(value)
            return ["object", self._references(state), self._references(state.values()), name]
        return None

    def _tuple_node(self, value: Any) -> list[Any]:
        kind = type(value)
        fields = None if kind is tuple else plain.fields_of(kind)
        if fields is None:
            return ["tuple", self._references(tuple.__iter__(value))]
        parts = [kind.__name__, tuple(fields), *tuple.__iter__(value)]
        return ["namedtuple", self._references(parts)]

    def _sequence(self, value: Any, kind: Any) -> list[Any]:
        items = self._references(kind.__iter__(value))
        return [items, value.maxlen] if kind is deque else [items]

    def _mapping(self, value: Any, kind: type) -> list[Any]:
        self._guard(value)
        pairs = [self._references(dict.keys(value)), self._references(dict.values(value))]
        return [*pairs, self._reference(value.default_factory)] if kind is defaultdict else pairs


#: How an object of a derived class becomes a plain one.
_CONVERTED: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
}
#: The data of a node, by the class of its value.
_NODES: dict[type, Callable[[Encoder, Any, type], list[Any]]] = {
    **dict.fromkeys(plain.MAPPINGS, Encoder._mapping),
    **dict.fromkeys((list, set, frozenset, deque), Encoder._sequence),
    int: lambda encoder, value, kind: [hex(value)],
    str: lambda encoder, value, kind: [value.encode("utf-8", "surrogatepass").hex()],
    bytes: lambda encoder, value, kind: [bytes.hex(value)],
    bytearray: lambda encoder, value, kind: [bytearray.hex(value)],
}
#: The classes of most values: for these no other class needs to be found.
_EXACT = frozenset({*_NODES, tuple})


class Decoder:
    """Makes values of nodes, and rejects invalid ones.

    Args:
        nodes: The table, as JSON gave it.
        accept: Returns the object of a node with the tag ``mine``, ``yours`` or ``global``.
        known: The objects of the nodes of the message that is answered.
        shared: The classes that the other side has, too.

    Attributes:
        objects: The object of each node.

    Raises:
        CodecError: The table is invalid.
    """

    def __init__(
        self,
        nodes: Any,
        accept: Callable[[list[Any]], Any],
        known: Sequence[Any] = (),
        *,
        shared: Shared | None = None,
    ) -> None:
        plain.expect(type(nodes) is list and all(map(_is_node, nodes)), "an invalid table of nodes")
        self._nodes: list[list[Any]] = nodes
        self._accept = accept
        self.shared = shared or Shared()
        self._known = known
        self.objects: list[Any] = [None] * len(nodes)
        self._depths: list[int] = [0] * len(nodes)  # 0: not made yet; -1: being made
        try:
            self._make()
        except plain.CodecError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise plain.CodecError(f"an invalid value: {str(error)[:100]}") from None

    def _make(self) -> None:
        for number, (tag, *data) in enumerate(self._nodes):
            if is_changing(tag):
                self._depths[number] = 1
                self.objects[number] = self._empty(tag, data)
        for number in range(len(self._nodes)):
            self._make_fixed(number)
        # Objects first: a container that has one as a key asks for its hash.
        for changing in ({"object"}, plain.EMPTY):
            for value, node in zip(self.objects, self._nodes, strict=True):
                if node[0] in changing:
                    if node[0] == "defaultdict":
                        value.default_factory = self.value(node[3])
                    plain.refill(value, self.contents(node))

    def _empty(self, tag: str, data: list[Any]) -> Any:
        if tag == "object":
            return self.shared.blank(data[-1])
        return deque(maxlen=data[1]) if tag == "deque" else plain.EMPTY[tag]()

    def contents(self, node: Any) -> Any:
        """Return the contents of a container's node, in a new container."""
        plain.expect(_is_node(node) and is_changing(node[0]), "a node that is no container")
        tag = node[0]
        if tag == "bytearray":
            return bytes.fromhex(node[1])
        items = self.values(node[1])
        if tag in ("list", "deque", "set"):
            return set(items) if tag == "set" else items
        return dict(zip(items, self.values(node[2]), strict=True))

    def values(self, references: Any) -> list[Any]:
        """Return the values of a list of references."""
        plain.expect(type(references) is list, "a value that is no list")
        if set(map(type, references)) <= plain.ATOMS:
            return list(references)
        return [self.value(each) for each in references]

    def value(self, reference: Any) -> Any:
        """Return the value of a reference."""
        if type(reference) in plain.ATOMS:
            return reference
        number = self._number(reference)
        return self.objects[number] if number >= 0 else self._known[-1 - number]

    def _number(self, reference: Any) -> int:
        is_number = type(reference) is list and len(reference) == 1 and type(reference[0]) is int
        plain.expect(is_number, "an invalid reference")
        number: int = reference[0]
        plain.expect(-len(self._known) <= number < len(self._nodes), "a reference to no node")
        return number

    def _make_fixed(self, number: int) -> None:
        """Make the value of a node that can't be changed, after those that it contains."""
        waiting = [number]
        while waiting:
            number = waiting[-1]
            tag, *data = self._nodes[number]
            if self._depths[number] > 0:
                waiting.pop()
                continue
            parts = [] if tag in LEAVES else self._parts(data)
            missing = [part for part in parts if self._depths[part] < 1]
            if missing:
                in_itself = self._depths[number] or any(self._depths[part] for part in missing)
                plain.expect(not in_itself, "a value that contains itself")
                self._depths[number] = -1
                waiting += dict.fromkeys(missing)
                continue
            fixed = (part for part in parts if not is_changing(self._nodes[part][0]))
            depth = 1 + max((self._depths[part] for part in fixed), default=0)
            plain.expect(depth <= DEEPEST, "it is nested too deeply")
            self.objects[number] = self._fixed(tag, data)
            self._depths[number] = depth
            waiting.pop()

    def _parts(self, data: list[Any]) -> list[int]:
        plain.expect(bool(data) and type(data[-1]) is list, "a value that is no list")
        numbers = (self._number(each) for each in data[-1] if type(each) is list)
        return [number for number in numbers if number >= 0]

    def _fixed(self, tag: str, data: list[Any]) -> Any:
        if tag in plain.COMPOSED:
            return plain.COMPOSED[tag](self.values(*data))
        if tag in ("mine", "yours", "global"):
            return self._accept([tag, *data])
        plain.expect(tag in _FIXED, "an unknown tag")
        return _FIXED[tag](self, *data)

    def _error(self, name: str, arguments: Any) -> Any:
        kind = plain.NAMES[name]
        is_error = isinstance(kind, type) and plain.error_name(kind) is not None
        plain.expect(is_error, "an error that is no exception")
        return kind(*self.values(arguments))


#: What makes a value that can't be changed of the data of its node, by its tag.
_FIXED: dict[str, Callable[..., Any]] = {
    "bytes": lambda decoder, text: bytes.fromhex(text),
    "error": Decoder._error,
    "int": lambda decoder, text: int(text, 16),
    "member": lambda decoder, name, member: decoder.shared.member(name, member),
    "name": lambda decoder, name: plain.NAMES[name],
    "record": lambda decoder, name, items: decoder.shared.record(name, decoder.values(items)),
    "str": lambda decoder, text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
}


def _is_node(node: Any) -> bool:
    return type(node) is list and len(node) > 1 and type(node[0]) is str
