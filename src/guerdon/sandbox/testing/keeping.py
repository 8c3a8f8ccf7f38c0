"""Answers of the program's objects, which are kept so that they don't change later.

A plain value is the same whenever it is read. An object of the program that is returned instead of
a plain value could be one number in one line of a test and another in the next.

Runs inside a sandbox, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import tee
from typing import Any

from . import plain, remote

MOST = 100_000  # items that are read to find one
_NUMBERS = frozenset({"__float__", "__int__", "__index__", "__complex__"})
_KEPT = "bool bytes format getitem hash len repr round str"
_TEXTS = frozenset(f"__{name}__" for name in _KEPT.split())
_CHANGES = (
    "add append clear copy discard extend get insert items keys pop popitem remove reverse "
    "setdefault sort update values"
)
#: Methods of plain values that describe the value or compare it with another.
QUERIES = frozenset(
    name
    for kind in (str, bytes, list, tuple, dict, set, int, float, complex)
    for name in dir(kind)
    if not name.startswith("_")
) - frozenset(_CHANGES.split())


class Keeping:
    """The answers of objects that the tests haven't made.

    Args:
        ask: Asks the program.
    """

    def __init__(self, ask: Callable[[remote.Remote, str, Sequence[Any]], Any]) -> None:
        self._ask = ask
        self._answers: dict[int, dict[Any, Any]] = {}
        self._items: dict[int, Iterator[Any]] = {}
        self._ahead: dict[int, deque[Any]] = {}

    def forget(self, *targets: Any) -> None:
        """Ask objects again, as something may have changed them."""
        for each in targets:
            self._answers.pop(each._guerdon_number, None)
            self._items.pop(each._guerdon_number, None)

    def operate(self, target: remote.Remote, name: str, args: Sequence[Any], made: bool) -> Any:
        """Call a special method of an object, or return its answer to an earlier call."""
        number = target._guerdon_number
        is_plain = all(type(arg) in plain.ATOMS for arg in args)
        if name in _NUMBERS or (name in _TEXTS and is_plain and not made):
            key = (name, *((type(arg), arg) for arg in args))
            answers = self._answers.setdefault(number, {})
            if key not in answers:
                answers[key] = self._ask(target, name, args)
            return answers[key]
        if name == "__next__" and self._ahead.get(number):
            return self._ahead[number].popleft()
        if name == "__iter__" and not made and not hasattr(type(target), "__next__"):
            items = self._items.get(number) or iter(self._ask(target, name, args))
            self._items[number], items = tee(items)  # the first one stays at the beginning
            return items
        if name not in ("__iter__", "__next__"):
            self.forget(target)
        return self._ask(target, name, args)

    def contains(self, target: remote.Remote, sought: Any) -> bool:
        """Return whether an object has a value among its items, all of which are read.

        Raises:
            TypeError: It isn't iterable, or has too many items.
        """
        try:
            items = iter(target)
        except TypeError:
            raise TypeError(
                f"argument of type {type(target).__name__!r} is not iterable; the program isn't "
                "asked whether it contains a plain value"
            ) from None
        found = deque[object]()
        for each in items:
            if len(found) >= MOST:
                raise TypeError(
                    f"an object of the program has more than {MOST:,} items: too many to find out "
                    "whether it contains a plain value"
                )
            found.append(each)
        if items is target:  # an iterator: the items after the one that is found are read later
            self._ahead[target._guerdon_number] = found
        while found:
            each = found.popleft()
            if each is sought or each == sought:
                return True
        return False
