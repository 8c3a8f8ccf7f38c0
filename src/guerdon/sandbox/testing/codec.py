"""Values on a wire: a flat table of nodes in JSON, with cycles and any depth.

The decoder makes nothing else of a message: no pickle, and no names but those of `plain.NAMES`.

A node is a list of a tag and its data. None, booleans, floats, integers of 64 bits and texts are
written as they are. Everything else is referred to by the number of its node, in a list of its own:
``[3]``. ``[-1 - k]`` is the container with the number ``k``, which both sides have. The node of a
container has its number before its contents; it replaces those of a container that both have.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import containers, plain, remote

DEEPEST = 2000  # levels of values that can't be changed: the interpreter hashes them recursively
#: Nodes without a list of values at their end.
LEAVES = frozenset({"bytes", "errors", "global", "int", "member", "mine", "name", "str", "yours"})


def _is_container(tag: Any) -> bool:
    return tag in containers.EMPTY or tag in ("object", "ndarray")


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
        link: The `Link` over which they go. It has the containers and the classes that the other
            side has, too, and exports what is no plain value.

    Attributes:
        nodes: The table.
        kinds: What the other side receives about the classes of the objects that are exported.
        derived: The numbers of containers of classes of this side, with their exports.
    """

    def __init__(self, link: Any) -> None:
        self._link = link
        self._export: Callable[[Encoder, Any], list[Any]] = link.export
        self._common, self._shared = link.common, link.shared
        self.nodes: list[Any] = []
        self.kinds: list[Any] = []
        self.derived: list[Any] = []
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # of nodes
        self._sent: list[tuple[int, Any]] = []
        self._done = 0

    def value(self, value: Any) -> Any:
        """Encode a value: return its reference, and add nodes for all that it contains."""
        reference = self.reference(value)
        self._finish()
        return reference

    def changed(self, values: Iterable[Any]) -> None:
        """Add the nodes of containers that the other side has, with their new contents."""
        for value in values:
            self._add(value)
        self._finish()

    def sent(self) -> None:
        """Record that the other side now has the containers of the message."""
        self._common.sent()
        for number, value in self._sent:
            self._common.place(number, value)

    def _finish(self) -> None:
        while self._done < len(self.nodes):  # no recursion: lists may be nested to any depth
            self.nodes[self._done] = self._node(self._objects[self._done])
            self._done += 1

    def _add(self, value: Any) -> int:
        number = self._numbers[id(value)] = len(self.nodes)
        self.nodes.append(None)
        self._objects.append(value)
        return number

    def reference(self, value: Any) -> Any:
        """Return the reference of a value, or of a part of one that is being encoded."""
        kind = type(value)
        if kind not in _EXACT and kind not in plain.ATOMS and kind not in self._shared.kinds:
            mro = plain.mro_of(kind)
            base = next((base for base in _CONVERTED if base in mro), None)
            if base is not None and not self._link.own(kind):
                value, kind = _CONVERTED[base](value), base
            elif kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
                value = value.item()  # a number of numpy
                kind = type(value)
        is_atom = kind in plain.ATOMS
        if kind is int:
            is_atom = -plain.SMALL <= value < plain.SMALL
        elif kind is str:
            is_atom = _sendable(value)
        if is_atom:
            return value
        number = self._numbers.get(id(value))
        if number is None:
            common = self._common.number(value)
            if common is not None:
                return [-1 - common]
            number = self._add(value)
        return [number]

    def references(self, items: Iterable[Any]) -> list[Any]:
        """Return the references of the parts of a value that is being encoded."""
        values = list(items)
        kinds = set(map(type, values))
        # A million numbers are checked by C alone.
        if kinds <= {int, bool}:
            if not values or -plain.SMALL <= min(values) <= max(values) < plain.SMALL:
                return values
        elif kinds <= {float, bool, type(None)} or (kinds == {str} and _sendable("".join(values))):
            return values
        return [self.reference(value) for value in values]

    def _node(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind not in _EXACT:
            mro = plain.mro_of(kind)
            base = next((base for base in plain.BASES if base in mro), kind)
            node = self._shared_node(value) or self._own_node(value, kind, base)
            if node is not None:
                return node
            kind = base
        if kind in _CONTENTS:
            return self._container(value, kind.__name__, _CONTENTS[kind](self, value, kind))
        if kind in _NODES:
            return [kind.__name__, *_NODES[kind](self, value)]
        if kind is tuple:
            return self._tuple_node(value)
        return self._other_node(value, kind)

    def _own_node(self, value: Any, kind: type, base: Any) -> list[Any] | None:
        """Return the node of a value that has more than the plain one from which it derives."""
        if base is kind or not self._link.own(kind):
            return None
        export = self._export(self, value)
        if base not in _CONTENTS:
            return ["derived", export, [self.reference(_PLAIN[base](value))]]
        node = self._container(value, base.__name__, _CONTENTS[base](self, value, base))
        self.derived.append([node[1], export])
        return node

    def _other_node(self, value: Any, kind: type) -> list[Any]:
        if (name := plain.NAMED.get(id(value))) is not None:
            return ["name", name]
        if containers.is_array(value):
            data = [value.tobytes().hex(), value.dtype.str, list(value.shape)]
            return self._container(value, "ndarray", data)
        if (parts := plain.parts_of(value, kind, copies=self._link.copies)) is not None:
            return [parts[0], self.references(parts[1])]
        return self._export(self, value)

    def _container(self, value: Any, tag: str, data: list[Any]) -> list[Any]:
        number = self._common.number(value)
        if number is None:
            number = self._common.new()
        self._sent.append((number, value))
        return [tag, number, *data]

    def _shared_node(self, value: Any) -> list[Any] | None:
        """Return the node of an object of a class that the other side has, too."""
        if type(value) not in self._shared.kinds:
            return None
        name, what = self._shared.name_of(value), self._shared.kinds[type(value)]
        if what == "record":
            return ["record", name, self.references(tuple.__iter__(value))]
        if what == "member" and value.name in type(value).__members__:
            return ["member", name, value.name]
        if what == "object" and containers.is_open(value):
            state = containers.state(value)
            data = [self.references(state), self.references(state.values()), name]
            return self._container(value, "object", data)
        return None

    def _tuple_node(self, value: Any) -> list[Any]:
        kind = type(value)
        fields = None if kind is tuple else plain.fields_of(kind)
        if fields is None:
            return ["tuple", self.references(tuple.__iter__(value))]
        parts = [kind.__name__, tuple(fields), *tuple.__iter__(value)]
        return ["namedtuple", self.references(parts)]

    def _sequence(self, value: Any, kind: Any) -> list[Any]:
        items = self.references(kind.__iter__(value))
        return [items, value.maxlen] if kind is deque else [items]

    def _mapping(self, value: Any, kind: type) -> list[Any]:
        self._link.guard(value)
        own = containers.kind_of_mapping(value)
        pairs = [self.references(own.keys(value)), self.references(own.values(value))]
        return [*pairs, self.reference(value.default_factory)] if kind is defaultdict else pairs


#: How an object of a derived class becomes a plain one.
_CONVERTED: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
}
_PLAIN: dict[Any, Callable[[Any], Any]] = _CONVERTED | {
    complex: complex.__complex__,
    bytes: bytes.__bytes__,
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
#: The data of the node of a container, by the class of its value.
_CONTENTS: dict[type, Callable[[Encoder, Any, type], list[Any]]] = {
    **dict.fromkeys(plain.MAPPINGS, Encoder._mapping),
    **dict.fromkeys((list, set, deque), Encoder._sequence),
    bytearray: lambda encoder, value, kind: [bytearray.hex(value)],
}
#: The data of the nodes of other values.
_NODES: dict[type, Callable[[Encoder, Any], list[Any]]] = {
    frozenset: lambda encoder, value: [encoder.references(frozenset.__iter__(value))],
    int: lambda encoder, value: [hex(value)],
    str: lambda encoder, value: [value.encode("utf-8", "surrogatepass").hex()],
    bytes: lambda encoder, value: [bytes.hex(value)],
}
#: The classes of most values: for these no other class needs to be found.
_EXACT = frozenset({*_CONTENTS, *_NODES, tuple})


class Decoder:
    """Makes values of nodes, and rejects invalid ones.

    Args:
        link: The `Link` over which they came. It accepts the nodes of what is no plain value.
        message: The message, as JSON gave it.

    Raises:
        CodecError: A table of the message is invalid.
    """

    def __init__(self, link: Any, message: dict[str, Any]) -> None:
        tables: Any = (message.get(key) for key in ("nodes", "kinds", "derived"))
        nodes, kinds, derived = tables
        plain.expect(type(nodes) is list and all(map(_is_node, nodes)), "an invalid table of nodes")
        plain.expect(type(kinds) is type(derived) is list, "a message without a table")
        self.kinds: list[Any] = kinds
        self._nodes: list[list[Any]] = nodes
        self._derived = dict(derived)
        self._link = link
        self._common, self._shared = link.common, link.shared
        self._objects: list[Any] = [None] * len(nodes)
        self._depths: list[int] = [0] * len(nodes)  # 0: not made yet; -1: being made
        try:
            self._make()
        except plain.CodecError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise plain.CodecError(f"an invalid value: {str(error)[:100]}") from None

    def _make(self) -> None:
        found: dict[int, Any] = {}
        for position, (tag, *data) in enumerate(self._nodes):
            if _is_container(tag):
                self._depths[position] = 1
                self._objects[position] = found[data[0]] = self._open(tag, data)
        for position in range(len(self._nodes)):
            self._make_fixed(position)
        containers_ = [node for node in self._nodes if _is_container(node[0])]
        # Objects first: a container that has one as a key asks for its hash.
        for tag, *data in sorted(containers_, key=lambda node: bool(node[0] != "object")):
            value = found[data[0]]
            if tag == "defaultdict":
                value.default_factory = self.value(data[3])
            self._link.refill(value, self._contents(tag, data))
        for number, value in found.items():
            self._common.place(number, value)

    def _open(self, tag: str, data: list[Any]) -> Any:
        """Return the container of a node, without its new contents."""
        number = data[0]
        plain.expect(type(number) is int and number >= 0, "a container without a number")
        value = self._common.get(number)
        if value is not None:
            is_kind = tag not in containers.EMPTY or isinstance(
                value, type(containers.EMPTY[tag]())
            )
            plain.expect(is_kind, "a container of another kind")
            return value
        plain.expect(not self._common.is_mine(number), "a container with an unknown number")
        return self._empty(tag, data)

    def _empty(self, tag: str, data: list[Any]) -> Any:
        if tag == "object":
            return self._shared.blank(data[-1])
        if tag == "ndarray":
            return containers.new_array(data[2], data[3])
        value = deque(maxlen=data[2]) if tag == "deque" else containers.EMPTY[tag]()
        export = self._derived.get(data[0])
        return value if export is None else remote.derived(value, self._link.accept(self, export))

    def _contents(self, tag: str, data: list[Any]) -> Any:
        if tag in ("bytearray", "ndarray"):
            return bytes.fromhex(data[1])
        items = self.values(data[1])
        if tag in ("list", "deque", "set"):
            return set(items) if tag == "set" else items
        return dict(zip(items, self.values(data[2]), strict=True))

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
        if number >= 0:
            return self._objects[number]
        value = self._common.get(-1 - number)
        plain.expect(value is not None, "a reference to no container")
        return value

    def _number(self, reference: Any) -> int:
        is_number = type(reference) is list and len(reference) == 1 and type(reference[0]) is int
        plain.expect(is_number, "an invalid reference")
        number: int = reference[0]
        plain.expect(number < len(self._nodes), "a reference to no node")
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
            fixed = (part for part in parts if not _is_container(self._nodes[part][0]))
            depth = 1 + max((self._depths[part] for part in fixed), default=0)
            plain.expect(depth <= DEEPEST, "it is nested too deeply")
            self._objects[number] = self._fixed(tag, data)
            self._depths[number] = depth
            waiting.pop()

    def _parts(self, data: list[Any]) -> list[int]:
        plain.expect(bool(data) and type(data[-1]) is list, "a value that is no list")
        numbers = (self._number(each) for each in data[-1] if type(each) is list)
        return [number for number in numbers if number >= 0]

    def _fixed(self, tag: str, data: list[Any]) -> Any:
        if tag in plain.COMPOSED:
            return plain.COMPOSED[tag](self.values(*data))
        if tag in _FIXED:
            return _FIXED[tag](self, *data)
        return self._link.accept(self, [tag, *data])

    def _derived_value(self, export: Any, base: Any) -> Any:
        [value] = self.values(base)
        handle = self._link.accept(self, export)
        return handle if export[0] == "yours" else remote.derived(value, handle)


#: What makes a value that can't be changed of the data of its node, by its tag.
_FIXED: dict[str, Callable[..., Any]] = {
    "bytes": lambda decoder, text: bytes.fromhex(text),
    "derived": Decoder._derived_value,
    "int": lambda decoder, text: int(text, 16),
    "member": lambda decoder, name, member: decoder._shared.member(name, member),
    "name": lambda decoder, name: plain.NAMES[name],
    "record": lambda decoder, name, items: decoder._shared.record(name, decoder.values(items)),
    "str": lambda decoder, text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
}


def _is_node(node: Any) -> bool:
    return type(node) is list and len(node) > 1 and type(node[0]) is str
