"""The process that runs the tests: it tells how each ended on its standard output.

The tests find under the entry point's name what stands for it in the program's process; all other
names are those of the task's own starter, of what the tests import, and of Python.

Runs inside of a sandbox: the standard library only, and little of it.
"""

from __future__ import annotations

import json
import os
import sys
from time import sleep
from types import CodeType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import keeping, link, plain, raised, reach, remote, stream
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_keeping as keeping
    import guerdon_link as link
    import guerdon_plain as plain
    import guerdon_raised as raised
    import guerdon_reach as reach
    import guerdon_remote as remote
    import guerdon_stream as stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from guerdon.sandbox.testing import codec

__all__ = ["Checker", "main"]

LOADED = 64 << 10  # bytes of the first message
PARTING = 0.01  # seconds in which is seen how the program's process ended, before this one ends
ROOM = 150  # frames that the tests may take beside those of this module and of asking
ORDER = remote.COMPARISONS - {"__eq__", "__ne__"}
RESUMED = frozenset({"send", "throw", "asend", "athrow", "__next__", "__anext__"})

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
        self._keeping = keeping.Keeping(super().operate)
        self._owners: dict[int, remote.Remote] = {}
        self._resuming: set[int] = set()  # the methods of generators by which they go on

    def loaded(self) -> dict[str, Any]:
        """What the program's process tells first; binds the entry point."""
        message = self.receive(LOADED)
        if "entry" in message:
            try:
                entry = self._decoder(message, ()).value(message["entry"])
                plain.expect(_is_remote(entry), "no entry point")
            except Exception:  # whatever it was, it came from there
                self.lose("it presented no entry point")
            return {"loaded": True, "entry": entry, "classes": message.get("classes")}
        for key in ("compile", "load"):
            if type(message.get(key)) is str:
                memory = message.get("memory") is True
                return {key: message[key][: 2 * raised.LONGEST], "memory": memory}
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
        number = target._guerdon_number
        touched = [each for each in (*args, *kwargs.values()) if _is_remote(each)]
        self._keeping.forget(target, self._owners.get(number, target), *touched)
        try:
            result = super().call(target, args, kwargs)
        except (StopIteration, StopAsyncIteration) as error:
            if number in self._resuming:
                raise
            raise _stopped(error) from error
        if _is_remote(result) and hasattr(type(result), "__await__"):
            return _waiting(result)
        return self._of_class(target, result)

    def attribute(self, target: remote.Remote, name: str) -> Any:
        """Read an attribute of an object of the program."""
        try:
            result = super().attribute(target, name)
        except (StopIteration, StopAsyncIteration) as error:
            raise _stopped(error) from error
        if not _is_remote(result):
            return result
        made = target._guerdon_made or (target is self.entry and self._is_class)
        if name in keeping.QUERIES and callable(result) and not made:
            raise TypeError(
                f"the program gave an object of its class {type(target).__name__!r} where a plain "
                f"value was expected: it isn't asked for {name!r}"
            )
        self._owners[result._guerdon_number] = target
        if name in RESUMED and hasattr(type(target), "__next__"):
            self._resuming.add(result._guerdon_number)
        return self._of_class(target, result)

    def operate(self, target: remote.Remote, name: str, args: Sequence[Any]) -> Any:  # noqa: C901  one branch per special method
        """Call a special method of an object of the program.

        What decides over a plain value is not left to the program: else it could return an object
        that equals, contains, or differs by nothing from whatever the tests expect.
        """
        if name in ("__exit__", "__aexit__"):
            args = [*args[:2], None]  # the traceback stays here
        made, mixed = target._guerdon_made, target._guerdon_mixed
        given = any(not _is_remote(arg) for arg in args)
        if given and name in remote.COMPARISONS:
            return _compared(name, target, args[0])
        if given and name == "__instancecheck__":
            return False
        if given and name == "__contains__" and not made:
            return self._keeping.contains(target, args[0])
        if given and name in remote.ARITHMETIC and not made:
            return NotImplemented
        if name in ORDER and not made and not self._is_class:
            return NotImplemented  # it would be sorted, however it is
        if mixed and name in NUMBERS:
            raise TypeError(f"{name} of what {type(target).__name__!r} made of a plain value")
        try:
            result = self._keeping.operate(target, name, args, made)
        except (StopIteration, StopAsyncIteration) as error:
            if name in ("__next__", "__anext__", "__await__"):
                raise
            raise _stopped(error) from error
        if made and name in TOGETHER:
            return self._together(result, mixed or given)
        return result

    def contains(self, target: remote.Remote, sought: Any) -> bool:
        """Whether an object of the program holds a value, which only can be walked."""
        if target._guerdon_made:
            return super().contains(target, sought)
        return self._keeping.contains(target, sought)

    def _of_class(self, target: remote.Remote, result: Any) -> Any:
        """Mark what came of the class that is tested, or of an object that it made."""
        if target._guerdon_made or (target is self.entry and self._is_class):
            return self._made(result)
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

    def _error(self, told: Any, decoder: codec.Decoder) -> BaseException:
        error = super()._error(told, decoder)
        if isinstance(error, raised.ProgramLeft):
            self.left = self.left or raised.describe(error)
        return error

    # What the program asks -----------------------------------------------------------------------

    def kind_of(self, value: Any) -> list[Any]:
        """What the program is told of an object of the tests."""
        reach.may_have(value)
        name, methods = super().kind_of(value)
        return [name, reach.methods_of(value, methods)]

    def guard(self, table: Any) -> None:
        """Refuse to send what no program may have."""
        reach.guard(table)

    def share(self, names: Mapping[str, Any], told: Any) -> None:
        """Share those of the starter's classes that the program says it has, of the same kind."""
        if type(told) is dict:
            kinds = self.shared.fill(names, told)
            same = [name for name, kind in kinds.items() if told[name] == kind]
            self.shared.fill(names, same)

    def refill(self, value: Any, new: Any) -> None:
        """Change an argument as the program did; what can be called stays what it was."""
        if not isinstance(value, plain.CHANGEABLE):
            for name, item in plain.state(value).items():
                plain.expect(not callable(item) or new.get(name) is item, "a changed method")
        super().refill(value, new)

    def _export(self, value: Any, kinds: list[Any]) -> list[Any]:
        if isinstance(value, type) and value in self.shared.kinds:
            return ["global", "program", value.__name__]
        found = reach.global_of(value)
        return super()._export(value, kinds) if found is None else ["global", *found]

    def perform(self, what: str, target: Any, name: str, args: list[Any], kwargs: Any) -> Any:
        """Do what the program asked, where it may."""
        if (
            (what == "do" and name in self.kind_of(target)[1])
            or (what == "call" and callable(target))
            or (what == "get" and reach.may_read(target, name))
            or (what in ("set", "del") and reach.may_change(target, name))
        ):
            return super().perform(what, target, name, args, kwargs)
        raise AttributeError(f"{type(target).__name__!r} object has no {name or what!r} from afar")


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


def _stopped(error: BaseException) -> RuntimeError:
    """An error that isn't taken for the end of the test's own loop over ``map(f, ...)``."""
    return RuntimeError(f"a call raised {type(error).__name__}")


def main() -> None:
    """Run the job that stands on the standard input, and tell how it went."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the tests print is no verdict
    job = json.loads(sys.stdin.buffer.read())
    sys.setrecursionlimit(sys.getrecursionlimit() + ROOM)

    def say(line: Any) -> None:
        told = line if type(line) is str else json.dumps(line)
        os.write(out, told.encode("ascii") + b"\n")

    here = Checker(3, job["is_class"], lambda: say("heard"))
    try:
        _check(job, here, say)
    except stream.LinkLost as lost:
        say({"lost": str(lost)})
        sleep(PARTING)
    say("done")
    os._exit(0)


def _check(job: dict[str, Any], here: Checker, say: Callable[[Any], None]) -> None:
    tests = [
        compile(test, f"<test {number}>", "exec", dont_inherit=True)
        for number, test in enumerate(job["tests"], start=1)
    ]
    starter = compile(job["starter"], "<starter>", "exec", dont_inherit=True)
    entry_point = job["entry_point"]
    try:
        names = _fresh(starter, entry_point)
    except BaseException as error:
        say({"starter": raised.describe(error)})
        return
    loaded = here.loaded()
    if "loaded" not in loaded:
        say(loaded)
        return
    say("loaded")
    here.entry = loaded.get("entry")
    told = False
    for test in tests:
        here.left = ""

        def run(test: CodeType = test) -> None:
            own = names.pop() if names else _fresh(starter, entry_point).pop()
            if here.entry is not None:
                own[entry_point] = here.entry
            here.share(own, loaded.get("classes"))
            exec(test, own)

        failure, memory = _run(run)
        if here.broken:
            here.lose(here.broken)  # whatever the test made of it
        failure = here.left or failure
        if failure and not told:
            say({"failed": failure})
            told = True
        if memory:
            say("memory")
        say("-" if failure else "+")


def _fresh(starter: CodeType, entry_point: str) -> list[dict[str, Any]]:
    """The names of a test, which shares nothing with another: in a list, to be taken once."""
    module = sys.modules["tests"] = ModuleType("tests")
    exec(starter, module.__dict__)
    module.__dict__.pop(entry_point, None)
    return [module.__dict__]


def _run(run: Callable[[], None]) -> tuple[str, bool]:
    """How a test failed, in words, and whether for want of memory."""
    try:
        run()
    except stream.LinkLost:
        return "lost", False
    except BaseException as error:  # SystemExit too
        return raised.describe(error), isinstance(error, MemoryError)
    return "", False
