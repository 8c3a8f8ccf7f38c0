"""Plain values on a wire: a flat table of nodes in JSON, which may hold cycles and any depth.

Nothing else is ever made of what comes in: no pickle, and no name but those of `plain.NAMES`.

A node is a list of a tag and what belongs to it. None, booleans, floats, integers of 64 bits and
texts stand where they are; everything else is the number of its node, in a list of its own:
``[3]``. ``[-1 - k]`` is node ``k`` of the message that is answered, so that an argument that comes
back is the same object.

Runs inside of a sandbox too: the standard library only, and little of it.
"""

from __future__ import annotations

from collections import defaultdict, deque

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import plain
    from guerdon.sandbox.testing.shared import Shared
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_plain as plain
    from guerdon_shared import Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

__all__ = ["Decoder", "Encoder", "index_of", "is_changing"]

HOLDING = frozenset({"tuple", "frozenset", "range", "slice", "error", "record", *plain.HELD})
DEEPEST = 2000  # of values that can't be changed: the interpreter hashes them by recursion in C


def is_changing(tag: Any) -> bool:
    """Whether what a node of a tag stands for can be changed."""
    return tag in plain.EMPTY or tag == "object"


def index_of(number: Any, table: Sequence[Any]) -> int:
    """A number that came in, where it is one of a table's."""
    plain.expect(type(number) is int and 0 <= number < len(table), "a number of nothing")
    return int(number)


def _sendable(text: str) -> bool:
    """Whether JSON keeps a text: two lone surrogates side by side would become one character."""
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
        export: Gives the node of an object that has no plain value.
        guard: Refuses tables that may not be sent.
        shared: The classes that the other side has, too.
        stays: A class whose objects aren't sent, though they are containers or numbers.
        known: The nodes of the message that is answered, by the `id` of their objects.

    Attributes:
        nodes: The table.
        objects: What each node stands for.
    """

    def __init__(
        self,
        export: Callable[[Any], list[Any]],
        *,
        guard: Callable[[Any], None] | None = None,
        shared: Shared | None = None,
        stays: type | None = None,
        known: dict[int, int] | None = None,
    ) -> None:
        self.export = export
        self.guard = guard
        self.shared = shared or Shared()
        self.stays = stays
        self.known = known or {}
        self.nodes: list[Any] = []
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._done = 0

    def value(self, value: Any) -> Any:
        """Encode a value: what stands for it, with nodes for all that it holds."""
        told = self._told(value)
        self._finish()
        return told

    def again(self, value: Any) -> list[Any]:
        """A node of its own for a container of the message that is answered."""
        node = self._node(value)
        self._finish()
        return node

    def _finish(self) -> None:
        while self._done < len(self.nodes):  # in no recursion: lists may be nested to any depth
            self.nodes[self._done] = self._node(self.objects[self._done])
            self._done += 1

    def _told(self, value: Any) -> Any:  # noqa: C901  one branch per kind of value
        kind = type(value)
        if kind not in plain.ATOMS:
            mro = plain.mro_of(kind)
            if kind in self.shared.kinds or (self.stays is not None and self.stays in mro):
                pass
            elif int in mro:
                value, kind = int.__int__(value), int
            elif float in mro:
                value, kind = float.__float__(value), float
            elif str in mro:
                value, kind = str.__str__(value), str
        if kind is int:
            if -plain.SMALL <= value < plain.SMALL:
                return value
        elif kind is str:
            if _sendable(value):
                return value
        elif kind in plain.ATOMS:
            return value
        key = id(value)
        if key in self.known:
            return [-1 - self.known[key]]
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.nodes)
            self.nodes.append(None)
            self.objects.append(value)
        return [number]

    def values_of(self, items: Iterable[Any]) -> list[Any]:
        """What stands for several values."""
        values = list(items)
        kinds = set(map(type, values))
        # A million numbers are looked at by C alone.
        if kinds <= {int, bool}:
            if not values or -plain.SMALL <= min(values) <= max(values) < plain.SMALL:
                return values
        elif kinds <= {float, bool, type(None)} or (kinds == {str} and _sendable("".join(values))):
            return values
        return [self._told(value) for value in values]

    def _common(self, value: Any) -> list[Any] | None:
        """The node of an object of a class that the other side has, too."""
        name, what = self.shared.name_of(value), self.shared.kinds[type(value)]
        if what == "record":
            return ["record", name, self.values_of(tuple.__iter__(value))]
        if what == "member" and value.name in type(value).__members__:
            return ["member", name, value.name]
        if what == "object" and plain.is_open(value):
            state = plain.state(value)
            return ["object", self.values_of(state), self.values_of(state.values()), name]
        return None

    def _node(self, value: Any) -> list[Any]:  # noqa: C901  one branch per kind of value
        kind = type(value)
        if self.stays is not None and self.stays in plain.mro_of(kind):
            return self.export(value)
        if kind in self.shared.kinds:
            common = self._common(value)
            if common is not None:
                return common
        if not (kind in _TELLERS or kind in plain.SEQUENCES or kind in plain.MAPPINGS):
            mro = plain.mro_of(kind)
            kind = next((base for base in plain.BASES if base in mro), kind)
        if kind is tuple and type(value) is not tuple:
            fields = plain.fields_of(type(value))
            if fields is not None:
                told = [[type(value).__name__], fields, self.values_of(tuple.__iter__(value))]
                return ["named", *told]
        if kind in plain.SEQUENCES:
            items = self.values_of(kind.__iter__(value))
            if kind is deque:
                return ["deque", items, value.maxlen]
            return [plain.SEQUENCES[kind], items]
        if kind in plain.MAPPINGS:
            if self.guard is not None:
                self.guard(value)
            pairs = [self.values_of(dict.keys(value)), self.values_of(dict.values(value))]
            if kind is defaultdict:
                return ["defaultdict", *pairs, self._told(value.default_factory)]
            return [plain.MAPPINGS[kind], *pairs]
        if kind in _TELLERS:
            return _TELLERS[kind](self, value)
        name = plain.NAMED.get(id(value))
        if name is not None:
            return ["name", name]
        stated = plain.stated(value, kind)
        if stated is not None:
            return stated
        if plain.error_name(kind):
            return ["error", plain.error_name(kind), self.values_of(value.args)]
        return self.export(value)


_TELLERS: dict[type, Callable[[Encoder, Any], list[Any]]] = {
    int: lambda encoder, value: ["int", hex(value)],
    str: lambda encoder, value: ["str", value.encode("utf-8", "surrogatepass").hex()],
    bytes: lambda encoder, value: ["bytes", bytes.hex(value)],
    bytearray: lambda encoder, value: ["bytearray", bytearray.hex(value)],
    complex: lambda encoder, value: ["complex", value.real, value.imag],
    range: lambda encoder, value: [
        "range",
        encoder.values_of((value.start, value.stop, value.step)),
    ],
    slice: lambda encoder, value: [
        "slice",
        encoder.values_of((value.start, value.stop, value.step)),
    ],
    type(...): lambda encoder, value: ["constant", "Ellipsis"],
    type(NotImplemented): lambda encoder, value: ["constant", "NotImplemented"],
}


class Decoder:
    """Makes values of nodes, and refuses what is none.

    Args:
        nodes: The table, as JSON gave it.
        accept: Gives the object that a node of tag ``mine``, ``yours`` or ``global`` stands for.
        known: What the nodes of the message that is answered stand for.
        shared: The classes that the other side has, too.

    Attributes:
        objects: What each node stands for.

    Raises:
        CodecError: It is no such table.
    """

    def __init__(
        self,
        nodes: Any,
        accept: Callable[[list[Any]], Any],
        known: Sequence[Any] = (),
        *,
        shared: Shared | None = None,
    ) -> None:
        plain.expect(
            type(nodes) is list and all(_is_node(node) for node in nodes), "no table of nodes"
        )
        self._nodes: list[list[Any]] = nodes
        self._accept = accept
        self._shared = shared or Shared()
        self._known = known
        self.objects: list[Any] = [None] * len(nodes)
        self._depths: list[int] = [0] * len(nodes)  # 0: not made yet; -1: being made
        try:
            self._make()
        except plain.CodecError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise plain.CodecError(f"a value that can't be: {str(error)[:100]}") from None

    def _make(self) -> None:
        for number, (tag, *rest) in enumerate(self._nodes):
            if tag in plain.EMPTY:
                self.objects[number] = (
                    deque(maxlen=rest[1]) if tag == "deque" else plain.EMPTY[tag]()
                )
                self._depths[number] = 1
            elif tag == "object":
                self.objects[number] = self._shared.blank(rest[-1])
                self._depths[number] = 1
        for number in range(len(self._nodes)):
            self._fix(number)
        # Objects first: what has one for a key asks for its hash.
        for changing in ({"object"}, plain.EMPTY):
            for number, node in enumerate(self._nodes):
                if node[0] in changing:
                    self._fill(number, node)

    def _fill(self, number: int, node: list[Any]) -> None:
        value = self.objects[number]
        if node[0] == "defaultdict":
            value.default_factory = self.value(node[3])
        plain.refill(value, self.again(node))

    def again(self, node: Any) -> Any:
        """What stands in a node that can be changed, in a container of its own."""
        plain.expect(_is_node(node) and is_changing(node[0]), "no container")
        tag = node[0]
        if tag == "bytearray":
            return bytes.fromhex(node[1])
        items = self.values(node[1])
        if tag in ("list", "deque"):
            return items
        if tag == "set":
            return set(items)
        others = self.values(node[2])
        plain.expect(len(items) == len(others), "no pairs")
        return dict(zip(items, others, strict=True))

    def values(self, told: Any) -> list[Any]:
        """The values of a list of them."""
        plain.expect(type(told) is list, "no list")
        if set(map(type, told)) <= plain.ATOMS:
            return list(told)
        return [self.value(each) for each in told]

    def value(self, told: Any) -> Any:
        """The value that something stands for."""
        if type(told) in plain.ATOMS:
            return told
        number = self._number(told)
        if number < 0:
            return self._known[-1 - number]
        return self.objects[number]

    def _number(self, told: Any) -> int:
        plain.expect(type(told) is list and len(told) == 1 and type(told[0]) is int, "no reference")
        number: int = told[0]
        plain.expect(-len(self._known) <= number < len(self._nodes), "a reference to nothing")
        return number

    def _fix(self, number: int) -> None:
        """Make a node that can't be changed, after those that it holds."""
        waiting = [number]
        while waiting:
            number = waiting[-1]
            tag, *rest = self._nodes[number]
            if self._depths[number] > 0:
                waiting.pop()
                continue
            held = self._held(rest) if tag in HOLDING else []
            missing = [each for each in held if self._depths[each] < 1]
            if missing:
                plain.expect(self._depths[number] == 0, "a value that holds itself")
                self._depths[number] = -1
                plain.expect(all(self._depths[each] == 0 for each in missing), "a value in itself")
                waiting += dict.fromkeys(missing)
                continue
            depth = 1 + max(
                (self._depths[each] for each in held if not self._empty(each)), default=0
            )
            plain.expect(depth <= DEEPEST, "it is nested too deeply")
            self.objects[number] = self._fixed(tag, rest)
            self._depths[number] = depth
            waiting.pop()

    def _empty(self, number: int) -> bool:
        return is_changing(self._nodes[number][0])

    def _held(self, rest: list[Any]) -> list[int]:
        plain.expect(bool(rest) and type(rest[-1]) is list, "no list")
        numbers = [self._number(each) for each in rest[-1] if type(each) is list]
        return [number for number in numbers if number >= 0]

    def _fixed(self, tag: str, rest: list[Any]) -> Any:
        if tag == "tuple":
            return tuple(self.values(*rest))
        if tag == "record":
            return self._shared.record(rest[0], self.values(rest[1]))
        if tag in plain.HELD:
            return plain.HELD[tag](*map(self.values, rest))
        if tag == "member":
            return self._shared.member(*rest)
        if tag == "frozenset":
            return frozenset(self.values(*rest))
        if tag in ("mine", "yours", "global"):
            return self._accept([tag, *rest])
        if tag == "name":
            return plain.NAMES[rest[0]]
        if tag == "error":
            kind = plain.NAMES[rest[0]]
            plain.expect(
                isinstance(kind, type) and plain.error_name(kind) is not None, "no exception"
            )
            return kind(*self.values(rest[1]))
        if tag in ("range", "slice"):
            return plain.NAMES[tag](*self.values(rest[0]))
        plain.expect(tag in plain.MAKERS, "a node of no kind")
        plain.expect(all(type(each) in plain.ATOMS for each in rest), "no value")
        return plain.MAKERS[tag](*rest)


def _is_node(node: Any) -> bool:
    return type(node) is list and len(node) > 1 and type(node[0]) is str
