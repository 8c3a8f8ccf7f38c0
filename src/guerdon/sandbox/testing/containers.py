"""Containers that both processes have: each has a copy, and the copies have the same contents.

A container keeps its identity: the list that a function returns twice is one list on the other
side, too, and what either side changes in it is changed in the other's copy with the next message.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import prod
from operator import is_
from sys import getrefcount
from types import MemberDescriptorType
from typing import Any

from .plain import expect, mro_of

#: The tags of their nodes, and what makes an empty one.
EMPTY: dict[str, Callable[[], Any]] = {
    kind.__name__: kind
    for kind in (list, set, bytearray, deque, dict, OrderedDict, Counter, defaultdict)
}
CONTAINERS = (list, set, dict, bytearray, deque)
ENVIRON = 0  # the number of the environment, which both sides always have
ALONE = 2  # references to a container that only its entry has: the entry's and the count's own


class Containers:
    """The containers that both sides have, by their numbers.

    Args:
        first: The first number that this side gives; it gives every second one.
    """

    def __init__(self, first: int) -> None:
        self._next = first
        self._entries: dict[int, list[Any]] = {}  # the container, and what the other side has
        self._numbers: dict[int, int] = {}
        self._forgotten: list[int] = []  # which the other side doesn't know yet

    def number(self, value: Any) -> int | None:
        """Return the number of a container; None if the other side doesn't have it."""
        return self._numbers.get(id(value))

    def get(self, number: int) -> Any:
        """Return the container of a number; None if there is none."""
        entry = self._entries.get(number)
        return None if entry is None else entry[0]

    def is_mine(self, number: int) -> bool:
        """Return whether this side gives a number."""
        return number % 2 == self._next % 2

    def new(self) -> int:
        """Return the number for another container."""
        number, self._next = self._next, self._next + 2
        return number

    def place(self, number: int, value: Any) -> None:
        """Record that the other side has a container with its present contents."""
        self._entries[number] = [value, contents(value)]
        self._numbers[id(value)] = number

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget containers that the other side doesn't have any more."""
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is not None:
                del self._numbers[id(entry[0])]

    def gone(self) -> list[int]:
        """Forget the containers that nothing on this side refers to.

        Those that have changed since are kept until their contents have been sent.

        Returns:
            The numbers of all that were forgotten since the last message was sent.
        """
        for number, entry in list(self._entries.items()):  # those that contain others come first
            if getrefcount(entry[0]) <= ALONE and _same(entry[1], contents(entry[0])):
                self._forgotten.append(number)
                self.forget((number,))
                entry.clear()  # so that nothing refers to what it contained
        return self._forgotten

    def sent(self) -> None:
        """Record that a message was sent, with the numbers that `gone` returned."""
        self._forgotten = []

    def changed(self) -> list[Any]:
        """Return the containers whose contents aren't those that the other side has."""
        return [
            value for value, known in self._entries.values() if not _same(known, contents(value))
        ]

    def clear(self) -> None:
        """Forget all containers but the environment."""
        numbers = [number for number in self._entries if number != ENVIRON]
        self._forgotten += numbers
        self.forget(numbers)


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy whose items are plain."""
    kind = type(value)
    is_numpy = (kind.__module__, kind.__name__) == ("numpy", "ndarray")
    return is_numpy and _DTYPE.fullmatch(value.dtype.str) is not None


def new_array(dtype: Any, shape: Any) -> Any:
    """Return an array of zeros."""
    expect(type(dtype) is str and _DTYPE.fullmatch(dtype) is not None, "an array of objects")
    sizes = [type(each) is int and 0 <= each < LARGEST for each in shape]
    expect(all(sizes) and prod(shape) < LARGEST, "an array that is too large")
    import numpy

    return numpy.zeros(shape, dtype)


#: Types of the items of arrays that travel: booleans, numbers, times and texts.
_DTYPE = re.compile(r"[<>|=][biufcmMSU][0-9]{1,4}(\[[a-z]+\])?")
LARGEST = 1 << 28  # items of an array


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, bytes):
        return bool(old == new)
    return len(old) == len(new) and all(map(is_, old, new))


def is_data(kind: type, name: Any) -> bool:
    """Return whether a public attribute of a class's objects is data: no method, no property."""
    if type(name) is not str or not name.isidentifier() or name.startswith("_"):
        return False
    own = next((vars(each)[name] for each in mro_of(kind) if name in vars(each)), None)
    if type(own) is MemberDescriptorType:
        return True
    return not callable(own) and not hasattr(type(own), "__get__")


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, including those in slots."""
    found: dict[str, Any] = {}
    for kind in mro_of(type(value))[:-1]:
        for name, own in vars(kind).items():
            if type(own) is MemberDescriptorType:
                with suppress(AttributeError):  # it isn't set
                    found[name] = own.__get__(value)
    with suppress(AttributeError):  # it has only slots
        found |= object.__getattribute__(value, "__dict__")
    return found


def is_open(value: Any) -> bool:
    """Return whether an object has only public attributes."""
    return not any(name.startswith("_") for name in _attributes(value))


def state(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that travel."""
    kind = type(value)
    return {name: item for name, item in _attributes(value).items() if is_data(kind, name)}


def kind_of_mapping(value: Any) -> Any:
    """Return the class whose methods read a dictionary in its own order."""
    return OrderedDict if isinstance(value, OrderedDict) else dict


def contents(value: Any) -> Any:
    """Return a copy of the contents of a container or object, to be compared later."""
    if isinstance(value, list):
        return list.copy(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return [*kind_of_mapping(value).keys(value), *kind_of_mapping(value).values(value)]
    if isinstance(value, (set, deque)):
        return list(value)
    if is_array(value):
        return value.tobytes()
    return [*(found := state(value)), *found.values()]


def refill(value: Any, new: Any) -> None:
    """Replace the contents of a container or object, without calling its own methods."""
    if isinstance(value, bytearray):
        bytearray.__setitem__(value, slice(None), new)
    elif isinstance(value, list):
        list.__setitem__(value, slice(None), new)
    elif isinstance(value, deque):
        deque.clear(value)
        deque.extend(value, new)
    elif isinstance(value, set):
        set.clear(value)
        set.update(value, new)
    elif isinstance(value, dict):
        kind = kind_of_mapping(value)
        kind.clear(value)
        for key, item in dict.items(new):
            kind.__setitem__(value, key, item)
    elif is_array(value):
        value[...] = type(value)(value.shape, value.dtype, new)
    else:
        expect(all(is_data(type(value), name) for name in new), "an attribute that isn't data")
        for name in state(value).keys() - new.keys():
            object.__delattr__(value, name)
        for name, item in new.items():
            object.__setattr__(value, name, item)
