"""The process that runs the tests: it reports on its standard output how each ended.

The entry point's name is bound to a proxy of the program's object. The other names that the tests
see are those of the tests, of the task's own starter, and of Python; a name that none of them
defines is the program's.

Runs inside a sandbox, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from . import (
    codec,
    containers,
    keeping,
    link,
    plain,
    raised,
    reach,
    remote,
    running,
    surroundings,
)

LOADED = 64 << 10  # bytes of the first message
ROOM = 150  # frames for the tests, beside those of this module and of asking
ORDER = remote.COMPARISONS - {"__eq__", "__ne__"}
STOPPING = frozenset({"__next__", "__anext__", "__await__"})
RESUMED = frozenset({"send", "throw", "asend", "athrow", "__next__", "__anext__"})

# Operations that return an object of the same kind, and those that return a plain number.
CLOSED = remote.ARITHMETIC | {"__neg__", "__pos__", "__invert__"}
_NUMBERS = "abs bool ceil complex float floor index int round trunc"
NUMBERS = frozenset(f"__{name}__" for name in _NUMBERS.split())


class Checker(surroundings.TestsSurroundings):
    """The tests' end of the link.

    Args:
        descriptor: Of the stream.
        entry_point: The name of the entry point.
        is_class: Whether it is a class, according to the task.
        on_answer: Called before the first answer is read.

    Attributes:
        entry: The proxy of the entry point.
        left: How the program tried to end its process in this test.
        touched: Whether this test has used the program.
        swallowed: A failed assertion that the program has received and not raised again.
    """

    first = 2

    def __init__(
        self, descriptor: int, entry_point: str, is_class: bool, on_answer: Callable[[], None]
    ) -> None:
        super().__init__(descriptor)
        self.left = ""
        self.entry: remote.Remote | None = None
        self.touched = False
        self.swallowed: BaseException | None = None
        self._entry_point = entry_point
        self._is_class = is_class
        self._on_answer: Callable[[], None] | None = on_answer
        self._keeping = keeping.Keeping(super().operate)
        self._entry_class: type | None = None  # that of an entry point that is an exception class
        self._owners: dict[int, remote.Remote] = {}
        self._tables: dict[int, Any] = {}  # the objects whose attributes the program has
        self._resuming: set[int] = set()  # the methods of generators that resume them

    def loaded(self) -> dict[str, Any]:
        """Bind the entry point, and return the program's classes, or why it isn't loaded."""
        message = self.receive(LOADED)
        if "entry" in message:
            try:
                number, kind, error = message["entry"]
                self.entry = self.remote(number, kind)
                self._entry_class = None if error is None else self._errors.of_classes(error)
            except Exception:  # whatever it is, the program's process is the cause
                self.lose("it presented no entry point")
        for key in ("compile", "load"):
            if type(message.get(key)) is str:
                memory = message.get("memory") is True
                return {key: message[key][: 2 * raised.LONGEST], "memory": memory}
        return {"classes": message.get("classes")}

    # What the tests ask --------------------------------------------------------------------------

    def ask(self, what: str, target: remote.Remote | None, name: str = "", *args: Any) -> Any:
        """Ask for something; no answer but an iterator's ends a loop of the test."""
        try:
            return super().ask(what, target, name, *args)
        except (StopIteration, StopAsyncIteration) as error:
            is_resumed = target is not None and target._guerdon_number in self._resuming
            if name in STOPPING or what == "turn" or (what == "call" and is_resumed):
                raise
            raise RuntimeError(f"a call raised {type(error).__name__}") from error

    def lookup(self, name: str) -> Any:
        """Return what the program calls by a name that the tests don't define.

        A module that the program imports under its own name is that of this process.

        Raises:
            KeyError: It doesn't define it either.
        """
        before, self.touched = self.touched, True
        if name == self._entry_point:
            if self.entry is None:
                raise KeyError(name)
            return self._entry_class or self.entry
        if name.startswith("__") and name not in _MODULE:
            raise KeyError(name)
        found = self.ask("name", None, name)
        if type(found).__name__ == "module" and name in sys.stdlib_module_names:
            self.touched = before
            return import_module(name)
        return found

    def _answer(self, token: str) -> dict[str, Any]:
        self.touched = True
        if self._on_answer is not None:
            self._on_answer()
            self._on_answer = None
        return super()._answer(token)

    def _result(self, answer: dict[str, Any]) -> Any:
        try:
            return super()._result(answer)
        except raised.ProgramLeft as error:
            self.left = self.left or raised.describe(error)
            raise
        except AssertionError as error:
            if error is self.swallowed:
                self.swallowed = None
            raise

    def begin(self) -> None:
        """Forget what the program did before a test."""
        self.left, self.swallowed = "", None

    def fault(self) -> str | None:
        """Return what the program did in a test that makes it fail in any case."""
        if self.broken:
            self.lose(self.broken)  # even if the test has caught it
        if self.swallowed is not None:
            return "the program has caught a failed assertion of the test"
        return self.left or None

    def failed(self, error: BaseException) -> None:
        """Remember an assertion that failed in a function that the program has called."""
        if isinstance(error, AssertionError) and self.swallowed is None:
            self.swallowed = error

    def call(self, target: remote.Remote, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an object of the program."""
        number = target._guerdon_number
        touched = [each for each in (*args, *kwargs.values()) if remote.is_remote(each)]
        self._keeping.forget(target, self._owners.get(number, target), *touched)
        result = super().call(target, args, kwargs)
        return self._mark(result, self._makes(target))

    def attribute(self, target: remote.Remote, name: str) -> Any:
        """Read an attribute of an object of the program."""
        result = super().attribute(target, name)
        is_asked = name in keeping.QUERIES and callable(result)
        is_class = target is self.entry and self._is_class
        if is_asked and target._guerdon_made < remote.CALLED and not is_class:
            raise TypeError(
                f"the program returned an object of its class {type(target).__name__!r} where a "
                f"plain value was expected: its method {name!r} isn't called"
            )
        if not remote.is_remote(result):
            return result
        self._owners[result._guerdon_number] = target
        if name in RESUMED and hasattr(type(target), "__next__"):
            self._resuming.add(result._guerdon_number)
        return self._mark(result, self._makes(target))

    def operate(self, target: remote.Remote, name: str, args: Sequence[Any]) -> Any:
        """Call a special method of an object of the program.

        Where a plain value takes part, the program doesn't decide: it could return an object that
        equals or contains every value, or whose difference from every value is 0.
        """
        made = target._guerdon_made
        has_plain = not all(map(remote.is_remote, args)) and not _is_start(name, args)
        decide = _DECIDED.get(name) if has_plain else None
        if decide is not None and made < UNLESS_MADE.get(name, 3):
            return decide(self, target, name, args[0])
        if name in ORDER and not made and not self._is_class:
            return NotImplemented  # such objects would be sorted in any order
        if target._guerdon_mixed and name in NUMBERS:
            raise TypeError(f"{name} of an object that {type(target).__name__!r} made of a value")
        if name in ("__exit__", "__aexit__"):
            return self._leave(target, name, args)
        result = self._keeping.operate(target, name, args, bool(made))
        if not made or name not in CLOSED:
            return result
        return self._closed(result, target._guerdon_mixed or (has_plain and name[:3] != "__i"))

    def _closed(self, result: Any, mixed: bool) -> Any:
        """Return the result of an operation on an object that the tests made; it is one, too."""
        if mixed and not _is_object(result):
            raise TypeError("an operation of the program's object and a value returned a value")
        return self._mark(result, remote.MADE, mixed)

    def _leave(self, target: remote.Remote, name: str, args: Sequence[Any]) -> Any:
        """Leave a ``with`` block of the program's; it can't hold back a failed assertion."""
        result = self._keeping.operate(target, name, _parting(*args), False)
        return result and not self._fails(*args[1:]) if name == "__exit__" else result

    async def wait(self, target: remote.Remote, name: str, args: Sequence[Any]) -> Any:
        """Await an object of the program, or what its special method returns."""
        result = await super().wait(target, name, args)
        return result and not self._fails(*args[1:]) if name == "__aexit__" else result

    def _fails(self, error: Any, trace: Any) -> bool:
        """Return whether an error in a ``with`` block of the program's fails the test anyway."""
        return isinstance(error, AssertionError) or _skips_assertion(trace, self.source)

    def contains(self, target: remote.Remote, sought: Any) -> bool:
        """Return whether an object of the program that can only be iterated has a value."""
        if target._guerdon_made == remote.CALLED:
            return super().contains(target, sought)
        return self._keeping.contains(target, sought)

    def _makes(self, target: remote.Remote) -> int:
        """Return what an object's results count as: made by the tests, or not."""
        owner = self._owners.get(target._guerdon_number, target)  # of a class method, the class
        if self._is_class and (target is self.entry or owner is self.entry):
            return remote.CALLED
        return remote.MADE if target._guerdon_made else 0

    def _mark(self, result: Any, made: int, mixed: bool = False) -> Any:
        """Mark an object as made by the tests; `mixed` if a plain value took part."""
        if remote.is_remote(result) and made:
            handle = remote.handle_of(result)
            if made > handle._guerdon_made:  # type: ignore[union-attr]
                object.__setattr__(handle, "_guerdon_made", made)
            if mixed:
                object.__setattr__(handle, "_guerdon_mixed", True)
        return result

    # What the program asks -----------------------------------------------------------------------

    def kind_of(self, value: Any) -> list[Any]:
        """Return what the program receives about the class of an object of the tests."""
        reach.may_have(value)
        name, methods, *rest = super().kind_of(value)
        return [name, reach.methods_of(value, methods), *rest]

    def guard(self, table: Any) -> None:
        """Raise for a dictionary that no program may receive."""
        reach.guard(table)

    def share(self, names: dict[str, Any], reported: Any) -> None:
        """Share the classes of the starter that the program reports as its own, too."""
        if type(reported) is dict:
            kinds = self.shared.fill(names, reported)
            self.shared.fill(names, [name for name in kinds if reported[name] == kinds[name]])

    def refill(self, value: Any, new: Any) -> None:
        """Change a container as the program did, but no callable attribute of an object."""
        owner = self._tables.get(id(value))
        if owner is not None:
            for name, item in new.items():
                tables = [value, *map(vars, plain.mro_of(type(owner)))]
                old = next((each[name] for each in tables if name in each), None)
                is_data = not (name.startswith("_") or callable(item) or callable(old))
                plain.expect(is_data or old is item, "a changed method")
        if not isinstance(value, containers.CONTAINERS):
            for name, item in containers.state(value).items():
                plain.expect(not callable(item) or new.get(name) is item, "a changed method")
        super().refill(value, new)

    def export(self, encoder: codec.Encoder, value: Any) -> list[Any]:
        """Return the node of a value that isn't plain."""
        if remote.is_remote(value):
            return super().export(encoder, value)
        if isinstance(value, type) and value in self.shared.kinds:
            return ["global", "program", value.__name__]
        found = reach.global_of(value)
        if found is not None:
            return ["global", *found]
        return super().export(encoder, value)

    def perform(self, what: str, target: Any, name: str, args: list[Any], kwargs: Any) -> Any:
        """Do what the program asked if it is permitted."""
        permitted: dict[str, Callable[[], Any]] = {
            "do": lambda: name in self.kind_of(target)[1],
            "call": lambda: reach.may_call(target),
            "get": lambda: reach.may_read(target, name),
            "set": lambda: reach.may_change(target, name),
            "del": lambda: reach.may_change(target, name),
            "turn": lambda: args and args[0] in self._tasks,
        }
        if what not in permitted or not permitted[what]():
            kind = type(target).__name__
            raise AttributeError(f"{kind!r} object has no {name or what!r} for the program")
        if name == "__dict__":
            self._tables[id(vars(target))] = target
        return super().perform(what, target, name, args, kwargs)

    # What the program's objects don't decide -----------------------------------------------------

    def _compare(self, target: remote.Remote, name: str, other: Any) -> Any:
        """Compare an object of the program with another that may decide, unless it is built in."""
        if type(other).__module__ != "builtins":
            return NotImplemented
        if name in ("__eq__", "__ne__"):
            same = target._guerdon_made and self._has(target, other)
            agrees = same and super().operate(target, "__eq__", (other,))
            return (agrees is not NotImplemented and bool(agrees)) == (name == "__eq__")
        kinds = f"{type(target).__name__!r} and {type(other).__name__!r}"
        raise TypeError(f"{name} not supported between instances of {kinds}")

    def _has(self, target: Any, other: Any) -> bool:
        """Return whether an object consists of what a plain value does."""
        methods, kind = type(target).__dict__, type(other)
        with contextlib.suppress(Exception):  # it doesn't have such items
            if kind in (list, tuple, set) and "__iter__" in methods:
                return bool(kind(target) == other)
            if kind is dict and {"__iter__", "__getitem__"} <= methods.keys():
                return bool({key: target[key] for key in target} == other)
            is_number = kind in (int, float, str) and f"__{kind.__name__}__" in methods
            return is_number and target._guerdon_made == remote.CALLED and kind(target) == other
        return False

    def _search(self, target: remote.Remote, name: str, sought: Any) -> bool:
        return self._keeping.contains(target, sought)

    def _refuse(self, target: remote.Remote, name: str, other: Any) -> Any:
        return NotImplemented

    def _check(self, target: remote.Remote, name: str, other: Any) -> bool:
        kind = type(other) if name == "__instancecheck__" else other
        own = kind.__module__ == "tests"
        return own and bool(super().operate(target, name, (other,)))


#: Special methods that the checker performs itself if a plain value takes part.
_DECIDED: dict[str, Callable[[Checker, remote.Remote, str, Any], Any]] = {
    **dict.fromkeys(remote.COMPARISONS, Checker._compare),
    **dict.fromkeys(remote.ARITHMETIC, Checker._refuse),
    **dict.fromkeys(("__instancecheck__", "__subclasscheck__"), Checker._check),
    "__contains__": Checker._search,
}
#: Those that objects perform which the tests have made, and how.
UNLESS_MADE = dict.fromkeys(remote.ARITHMETIC, remote.MADE) | {"__contains__": remote.CALLED}


#: Special names that a module of the program may define.
_MODULE = frozenset({"__all__", "__author__", "__version__"})


def _is_start(name: str, args: Sequence[Any]) -> bool:
    """Return whether an operation is the first one of `sum`."""
    return name == "__radd__" and type(args[0]) is int and args[0] == 0


def _is_object(result: Any) -> bool:
    """Return whether a result of an operation can't be a number that depends on a plain value."""
    is_value = isinstance(result, (int, float, complex, str))
    return result is NotImplemented or (remote.is_remote(result) and not is_value)


def _parting(kind: Any, error: Any, trace: Any) -> tuple[Any, ...]:
    """Return what a context manager of the program receives: nothing that a test expects."""
    is_own = isinstance(error, AssertionError)
    return (AssertionError, AssertionError(), None) if is_own else (kind, error, None)


def _skips_assertion(trace: Any, source: str) -> bool:
    """Return whether an error left out an assertion of the test's ``with`` block.

    Args:
        trace: Where the error was raised.
        source: The test.
    """
    if trace is None or trace.tb_frame.f_code.co_filename != "<test>":
        return False
    line = trace.tb_frame.f_lineno  # of the ``with``, which is being left
    return any(
        isinstance(each, ast.Assert)
        or (isinstance(each, ast.Attribute) and each.attr.startswith("assert"))
        for block in ast.walk(ast.parse(source))
        if isinstance(block, (ast.With, ast.AsyncWith))
        and block.lineno <= line <= (block.items[-1].context_expr.end_lineno or 0)
        for statement in block.body
        for each in ast.walk(statement)
        if getattr(each, "end_lineno", 0) >= trace.tb_lineno
    )


def main() -> None:
    """Run the tests of the job on standard input, and report how each ended."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the tests print is no report
    job = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the program may name it as a file to be read
    sys.addaudithook(reach.audit)
    sys.setrecursionlimit(sys.getrecursionlimit() + ROOM)

    def report(line: Any) -> None:
        text = line if type(line) is str else json.dumps(line)
        os.write(out, text.encode("ascii") + b"\n")

    checker = Checker(3, job["entry_point"], job["is_class"], lambda: report("answered"))
    try:
        running.Tests(job, checker, report).run()
    except link.LinkLost as lost:
        report({"lost": str(lost)})
    report("done")
    os._exit(0)
