"""The process that runs the tests: it tells how each ended on its standard output.

The tests find under the entry point's name what stands for it in the program's process; all other
names are those of the task's own starter, of what the tests import, and of Python.

Runs inside of a sandbox: the standard library only, and little of it.
"""

from __future__ import annotations

import json
import os
import sys
from types import CodeType, FrameType, ModuleType, TracebackType

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import link, plain, raised, remote
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_link as link
    import guerdon_plain as plain
    import guerdon_raised as raised
    import guerdon_remote as remote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

__all__ = ["Checker", "main"]

LOADED = 64 << 10  # bytes of the first message
#: Frames, code and modules lead to what the tests know.
BARRED = (CodeType, FrameType, ModuleType, TracebackType)
GIVEN = frozenset(
    f"__{name}__"
    for name in ["call", "contains", "getitem", "iter", "len", "next", "repr", "reversed", "str"]
)
#: By these a text or a set answers yes or no to what it is given, or about itself.
PREDICATES = frozenset(
    name
    for kind in (str, bytes, set, float)
    for name in dir(kind)
    if name.startswith("is") or name in ("startswith", "endswith")
)


# What makes an object of the same kind, and what makes a plain number of one.
TOGETHER = remote.ARITHMETIC | {"__neg__", "__pos__", "__invert__"}
_NUMBERS = "abs bool ceil complex float floor index int round trunc"
NUMBERS = frozenset(f"__{name}__" for name in _NUMBERS.split())


class Checker(link.Link):
    """The tests' end of the link.

    Args:
        descriptor: Of the stream.
        is_class: Whether the entry point is a class, by the word of the task.
        heard: Called before the first answer is read.

    Attributes:
        left: How the program wanted to end its process in this test.
    """

    keeps_errors = True

    def __init__(self, descriptor: int, is_class: bool, heard: Callable[[], None]) -> None:
        super().__init__(descriptor)
        self.left = ""
        self.entry: remote.Remote | None = None
        self._is_class = is_class
        self._heard: Callable[[], None] | None = heard

    def loaded(self) -> dict[str, Any]:
        """What the program's process tells first; binds the entry point."""
        message = self.receive(LOADED)
        if "entry" in message:
            try:
                entry = self._decoder(message, ()).value(message["entry"])
            except Exception:  # whatever it was, it came from there
                self.lose("it presented no entry point")
            return {"loaded": True, "entry": entry}
        if any(type(message.get(key)) is str for key in ("compile", "load")):
            return message
        if message.get("loaded") is not True:
            self.lose("it spoke before it was loaded")
        return {"loaded": True}

    # What the tests ask --------------------------------------------------------------------------

    def _token(self) -> str:
        return os.urandom(8).hex()

    def _awaited(self, token: str) -> dict[str, Any]:
        if self._heard is not None:
            self._heard()
            self._heard = None
        return super()._awaited(token)

    def call(self, target: remote.Remote, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an object of the program."""
        result = super().call(target, args, kwargs)
        if target is self.entry and self._is_class:
            return self._made(result)
        if _is_remote(result) and hasattr(type(result), "__await__"):
            return _waiting(result)
        return result

    def attribute(self, target: remote.Remote, name: str) -> Any:
        """Read an attribute of an object of the program."""
        if name in PREDICATES and not target._guerdon_made:
            raise AttributeError(
                f"{type(target).__name__!r} object of the program is no text and no set: "
                f"it isn't asked for {name!r}"
            )
        return super().attribute(target, name)

    def operate(self, target: remote.Remote, name: str, args: Sequence[Any]) -> Any:
        """Call a special method of an object of the program.

        What decides over a plain value is not left to the program: else it could return an object
        that equals, contains, or differs by nothing from whatever the tests expect.
        """
        if name == "__exit__":
            args = [*args[:2], None]  # the traceback stays here
        given = any(not _is_remote(arg) for arg in args)
        if given and name in remote.COMPARISONS:
            return _compared(name, target, args[0])
        if given and name == "__instancecheck__":
            return False
        if given and name == "__contains__" and not target._guerdon_made:
            return any(each is args[0] or each == args[0] for each in _walked(target))
        if given and name in remote.ARITHMETIC and not target._guerdon_made:
            return NotImplemented
        if target._guerdon_mixed and name in NUMBERS:
            raise TypeError(f"{name} of what {type(target).__name__!r} made of a plain value")
        result = super().operate(target, name, args)
        if target._guerdon_made and name in TOGETHER:
            return self._together(result, target._guerdon_mixed or given)
        return result

    def _made(self, result: Any, mixed: bool = False) -> Any:
        """Mark an object that the tests have made themselves, or made of such a one."""
        if _is_remote(result):
            object.__setattr__(result, "_guerdon_made", True)
            if mixed:
                object.__setattr__(result, "_guerdon_mixed", True)
        return result

    def _together(self, result: Any, mixed: bool) -> Any:
        """The result of arithmetic: if a plain value went in, no other comes out of it."""
        if mixed and not _is_remote(result) and result is not NotImplemented:
            raise TypeError("what the program's object and a plain value make is a plain value")
        return self._made(result, mixed)

    def _error(self, told: Any) -> BaseException:
        error = super()._error(told)
        if isinstance(error, raised.ProgramLeft):
            self.left = self.left or raised.describe(error)
        return error

    # What the program asks -----------------------------------------------------------------------

    def kind_of(self, value: Any) -> list[Any]:
        """What the program is told of an object of the tests."""
        if isinstance(value, BARRED):
            raise TypeError(f"the program is given no {type(value).__name__}")
        name, methods = super().kind_of(value)
        return [name, methods if _is_open(value) else sorted(GIVEN.intersection(methods))]

    def perform(self, what: str, target: Any, name: str, args: list[Any], kwargs: Any) -> Any:
        """Do what the program asked, where it may."""
        if what == "do" and name in self.kind_of(target)[1]:
            return super().perform(what, target, name, args, kwargs)
        if what == "call" and callable(target):
            return super().perform(what, target, name, args, kwargs)
        if what in ("get", "set", "del") and _is_open(target) and not name.startswith("_"):
            return super().perform(what, target, name, args, kwargs)
        raise AttributeError(f"{type(target).__name__!r} object has no {name or what!r} from afar")


def _is_open(value: Any) -> bool:
    """Whether the program may use an object's attributes: it is no function, class or iterator."""
    where = type(value).__module__
    return where == "tests" or (where != "builtins" and not callable(value))


def _is_remote(value: Any) -> bool:
    return remote.Remote in plain.mro_of(type(value))


def _compared(name: str, target: remote.Remote, other: Any) -> Any:
    """How an object of the program compares with what is none; the other may know, but not it."""
    if type(other).__module__ != "builtins":
        return NotImplemented
    if name in ("__eq__", "__ne__"):
        return name == "__ne__"
    kinds = f"{type(target).__name__!r} and {type(other).__name__!r}"
    raise TypeError(f"{name} not supported between instances of {kinds}")


async def _waiting(value: Any) -> Any:
    return await value  # a coroutine of this process: event loops take no other


def _walked(target: remote.Remote) -> Any:
    try:
        return iter(target)
    except TypeError:
        raise TypeError(
            f"argument of type {type(target).__name__!r} is not iterable; whether it contains a "
            "plain value is not asked of the program"
        ) from None


def main() -> None:
    """Run the job that stands on the standard input, and tell how it went."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the tests print is no verdict
    job = json.loads(sys.stdin.buffer.read())

    def say(line: Any) -> None:
        told = line if type(line) is str else json.dumps(line)
        os.write(out, told.encode("ascii") + b"\n")

    here = Checker(3, job["is_class"], lambda: say("heard"))
    try:
        _check(job, here, say)
    except link.LinkLost as lost:
        say({"lost": str(lost)})
    say("done")
    os._exit(0)


def _check(job: dict[str, Any], here: Checker, say: Callable[[Any], None]) -> None:
    module = sys.modules["tests"] = ModuleType("tests")
    names = module.__dict__
    name = job["entry_point"]
    tests = [
        compile(test, f"<test {number}>", "exec", dont_inherit=True)
        for number, test in enumerate(job["tests"], start=1)
    ]
    try:
        exec(compile(job["starter"], "<starter>", "exec", dont_inherit=True), names)
    except BaseException as error:
        say({"starter": raised.describe(error)})
        return
    names.pop(name, None)
    loaded = here.loaded()
    if "loaded" not in loaded:
        said = {
            key: value[: 2 * raised.LONGEST] for key, value in loaded.items() if type(value) is str
        }
        say(said | {"memory": loaded.get("memory") is True})
        return
    say("loaded")
    if "entry" in loaded:
        names[name] = here.entry = loaded["entry"]
    told = False
    for test in tests:
        here.left = ""
        failure, memory = _run(test, dict(names))
        if here.broken:
            here.lose(here.broken)  # whatever the test made of it
        failure = here.left or failure
        if failure and not told:
            say({"failed": failure})
            told = True
        if memory:
            say("memory")
        say("-" if failure else "+")


def _run(test: CodeType, names: dict[str, Any]) -> tuple[str, bool]:
    """How a test failed, in words, and whether for want of memory."""
    try:
        exec(test, names)
    except link.LinkLost:
        return "lost", False
    except BaseException as error:  # SystemExit too
        return raised.describe(error), isinstance(error, MemoryError)
    return "", False
