"""What objects of the program have answered, so that they can't answer otherwise later.

A plain value is the same whenever it is asked. An object of the program that is handed in where a
plain value was expected could be one number for one line of a test and another for the next.

Runs inside of a sandbox: the standard library only, and little of it.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import plain
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_plain as plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from guerdon.sandbox.testing import remote

__all__ = ["Keeping", "QUERIES"]

MOST = 100_000  # items that are walked through to find one
_NUMBERS = frozenset({"__float__", "__int__", "__index__", "__complex__"})
_KEPT = "bool bytes format hash len repr round str"
_TEXTS = frozenset(f"__{name}__" for name in _KEPT.split())
_CHANGES = (
    "add append clear copy discard extend get insert items keys pop popitem remove reverse "
    "setdefault sort update values"
)
#: Methods by which a plain value tells of itself, and of what it is given.
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
        self._walks: dict[int, _Walk] = {}
        self._ahead: dict[int, deque[Any]] = {}

    def forget(self, *targets: Any) -> None:
        """Something may have changed these objects: they are asked anew."""
        for each in targets:
            number = each._guerdon_number
            self._answers.pop(number, None)
            self._walks.pop(number, None)

    def operate(self, target: remote.Remote, name: str, args: Sequence[Any], made: bool) -> Any:
        """Call a special method of an object, or give what it has answered before."""
        number = target._guerdon_number
        if name in _NUMBERS or (
            not made
            and (name in _TEXTS or name == "__getitem__")
            and all(type(arg) in plain.ATOMS for arg in args)
        ):
            key = (name, *((type(arg), arg) for arg in args))
            answers = self._answers.setdefault(number, {})
            if key not in answers:
                answers[key] = self._ask(target, name, args)
            return answers[key]
        if name == "__next__":
            ahead = self._ahead.get(number)
            return ahead.popleft() if ahead else self._ask(target, name, args)
        if name == "__iter__":
            if made or hasattr(type(target), "__next__"):
                return self._ask(target, name, args)
            if number not in self._walks:
                self._walks[number] = _Walk(iter(self._ask(target, name, args)))
            return self._walks[number].items()
        self.forget(target)
        return self._ask(target, name, args)

    def contains(self, target: remote.Remote, sought: Any) -> bool:
        """Whether an object that isn't asked for that holds a value: it is walked to its end.

        Raises:
            TypeError: It can't be walked, or comes to no end.
        """
        try:
            items = iter(target)
        except TypeError:
            raise TypeError(
                f"argument of type {type(target).__name__!r} is not iterable; whether it contains "
                "a plain value is not asked of the program"
            ) from None
        found = deque[object]()
        for each in items:
            if len(found) >= MOST:
                raise TypeError(
                    f"an object of the program has more than {MOST:,} items: whether it contains "
                    "a plain value isn't looked for"
                )
            found.append(each)
        if items is target:  # it can be walked but once: what comes after stays to be had
            self._ahead[target._guerdon_number] = found
        while found:
            each = found.popleft()
            if each is sought or each == sought:
                return True
        return False


class _Walk:
    """The items of an object that was walked once, as far as somebody has come."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source, self._items = source, list[object]()

    def items(self) -> Iterator[Any]:
        """Them all, the same each time."""
        at = 0
        while True:
            if at == len(self._items):
                try:
                    self._items.append(next(self._source))
                except StopIteration:
                    return
            yield self._items[at]
            at += 1
