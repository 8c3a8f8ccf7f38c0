"""Running the tests: each with names of its own, those of `unittest` as `unittest` runs them.

Runs inside a sandbox, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import sys
import unittest
from collections.abc import Callable
from functools import partial
from itertools import groupby
from types import ModuleType
from typing import Any

from . import link, raised

MODULE = "solution"  # what tests call the program's module


class Names(dict[str, Any]):
    """Python's own names, and where it has none, what the program calls by that name.

    They are taken when a test uses them: a copy of all would write to the pages of all of Python's
    own objects, and so copy these pages for each process.

    Args:
        entry_point: A name of the program in any case, such as ``sum``.
        named: Returns the program's object of a name.
    """

    def __init__(self, entry_point: str, named: Callable[[str], Any]) -> None:
        # The interpreter doesn't ask `__missing__` for these two.
        super().__init__(__import__=builtins.__import__, __build_class__=builtins.__build_class__)
        self._entry_point, self._named = entry_point, named

    def __missing__(self, name: str) -> Any:
        own = vars(builtins)
        if name == self._entry_point or name not in own:
            return self._named(name)
        self[name] = own[name]
        return self[name]


class Tests:
    """The tests of a job.

    Args:
        job: The job.
        checker: The link to the program.
        report: Sends a line to the host.
    """

    def __init__(self, job: dict[str, Any], checker: Any, report: Callable[[Any], None]) -> None:
        self._job, self._checker, self._report = job, checker, report
        self._builtins = Names(job["entry_point"], checker.lookup)
        checker.on_builtin = self._builtins.__setitem__
        self._starter = compile(job["starter"], "<starter>", "exec", dont_inherit=True)
        self._number = 0
        self._has_failed = self._has_cases = False
        self._failures: list[BaseException] = []  # of runners of the tests' own

    def run(self) -> None:
        """Run all tests, and report on each."""
        try:
            names = self._fresh()
        except BaseException as error:
            self._report({"starter": raised.describe(error)})
            return
        loaded = self._checker.loaded()
        if "classes" not in loaded:
            self._report(loaded)
            return
        self._report("loaded")
        for text, units in self._job["tests"]:
            names = names or self._fresh()
            self._checker.share(names, loaded["classes"])
            self._text(text, units, names)
            names = {}
            self._checker.common.clear()

    def _fresh(self) -> dict[str, Any]:
        """Return names for a text, which shares nothing with another one."""
        module = sys.modules["tests"] = ModuleType("tests")
        file = os.path.join(os.getcwd(), "test.py")
        module.__dict__.update(__builtins__=self._builtins, __file__=file)
        exec(self._starter, module.__dict__)
        module.__dict__.pop(self._job["entry_point"], None)
        return module.__dict__

    def _text(self, source: str, units: list[str], names: dict[str, Any]) -> None:
        """Run a text, and those of its tests that it doesn't run itself."""
        checker = self._checker
        code = compile(source, "<test>", "exec", dont_inherit=True)
        self._import_program(source)
        if "unittest" in source and not self._has_cases:
            self._has_cases = True
            unittest.main = _no_main  # type: ignore[assignment]
            _record_failures(self._failures)
        checker.watch(source)
        checker.touched = False
        error = self._attempt(partial(exec, code, names))
        touched = checker.touched
        if error is not None:  # the others can't be run
            for _ in units:
                self.ended(error)
            return
        if units[0] == "":
            self.ended(None)
        for are_methods, found in groupby(filter(None, units), lambda name: "." in name):
            if are_methods:
                self._methods(list(found), names, touched)
                continue
            for name in found:
                checker.touched = touched
                self.ended(self._attempt(partial(self._function, name, names)))

    def _function(self, name: str, names: dict[str, Any]) -> None:
        args = [eval(self._job["entry_point"], names)] if name == "check" else []
        result = names[name](*args)
        if hasattr(type(result), "__await__"):
            import asyncio

            asyncio.run(link.awaiting(result))

    def _methods(self, tests: list[str], names: dict[str, Any], touched: bool) -> None:
        """Run methods of classes of `unittest`, and report on each as soon as it has ended."""
        result = _Result(self, self._checker, tests, touched)
        suite = unittest.TestSuite()
        for name in tests:
            kind, _, method = name.partition(".")
            error = self._attempt(partial(_add, suite, names, kind, method))
            if error is not None:
                result.around.setdefault(name, error)
        self._checker.touched = touched
        result.finish(self._attempt(partial(suite.run, result)))

    def _attempt(self, action: Callable[[], object]) -> BaseException | str | None:
        """Do something, and return why it failed."""
        self._checker.begin()
        self._failures.clear()
        error: BaseException | None = None
        try:
            action()
            error = self._failures[0] if self._failures else None
        except BaseException as fault:  # SystemExit too
            error = fault
            if isinstance(fault, MemoryError):
                self._report("memory")
        return self._checker.fault() or error

    def ended(self, error: BaseException | str | None) -> None:
        """Report how a test ended."""
        checker = self._checker
        self._number += 1
        failure = error if error is None or isinstance(error, str) else raised.describe(error)
        if not checker.touched and checker.entry is not None:
            self._report({"untouched": [self._number, failure]})
            failure = failure or "it doesn't use the program"
        if failure is not None and not self._has_failed:
            is_own = isinstance(error, str) or hasattr(error, "_guerdon_line")
            self._report({"failed": failure, "own": is_own, "kind": type(error).__name__})
            self._has_failed = True
        self._report("+" if failure is None else "-")

    def _import_program(self, source: str) -> None:
        """Let a text import the program: as `MODULE`, or the entry point of any other module."""
        if "import" not in source:
            return
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                is_program = self._job["entry_point"] in [each.name for each in node.names]
                self._provide(node.module, is_program)
            elif isinstance(node, ast.Import):
                for each in node.names:
                    self._provide(each.name, False)

    def _provide(self, name: str, is_program: bool) -> None:
        known = name in sys.modules or "." in name
        if known or not (is_program or name == MODULE) or importlib.util.find_spec(name):
            return
        sys.modules[name] = _Program(name, self._checker)


class _Program(ModuleType):
    """The program's module, as the tests import it."""

    def __init__(self, name: str, checker: Any) -> None:
        super().__init__(name)
        self.__dict__["_guerdon_link"] = checker

    def __getattr__(self, name: str) -> Any:
        try:
            return self._guerdon_link.lookup(name)
        except KeyError:
            raise AttributeError(f"the program has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._guerdon_link.ask("rename", None, name, (value,))

    def __delattr__(self, name: str) -> None:
        self._guerdon_link.ask("rename", None, name)


class _Result(unittest.TestResult):
    """Receives from `unittest` how each test ended, and reports on them in their order.

    The last one ends with its class, whose fixtures may fail.

    Args:
        tests: The tests of the job.
        checker: The link to the program.
        names: The names of the tests, in the order in which they run.
        touched: Whether what comes before each test has used the program.

    Attributes:
        around: Why a test, its class or the module (an empty name) couldn't be made, set up or torn
            down.
    """

    def __init__(self, tests: Tests, checker: Any, names: list[str], touched: bool) -> None:
        super().__init__()
        self._tests, self._checker, self._touched = tests, checker, touched
        self._waiting = list(names)
        self._outcomes: dict[str, Any] = {}
        self._errors: list[BaseException | str] = []
        self._has_passed = False
        self.around: dict[str, BaseException | str] = {}

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self._errors, self._has_passed = [], False
        self._checker.begin()
        # What `setUpClass` has used, too.
        self._touched = self._checker.touched = self._checker.touched or self._touched

    # The methods that are overridden format the error, which may call the program.

    def addError(self, test: Any, err: Any) -> None:
        self._errors.append(err[1])
        if not isinstance(test, unittest.TestCase):  # such as "setUpClass (tests.Case)"
            _, _, kind = str(test).partition(" (tests")
            self.around[kind.strip(".)")] = err[1]

    def addFailure(self, test: Any, err: Any) -> None:
        self._errors.append(err[1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._errors.append(err[1])

    def addSkip(self, test: Any, reason: str) -> None:
        self._errors.append(f"it is skipped: {reason}")

    def addSuccess(self, test: Any) -> None:
        self._has_passed = True

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._has_passed = True

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._errors.append("it was expected to fail")

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        own = self._errors[0] if self._errors else None if self._has_passed else "it didn't end"
        name = f"{type(test).__name__}.{test._testMethodName}"
        self._outcomes[name] = self._checker.fault() or own, self._checker.touched
        while self._waiting[0] in self._outcomes and not self._is_last(name):
            self._report_next(None)
        self._checker.touched = False

    def _is_last(self, ended: str) -> bool:
        """Return whether the next report is that of the last test of a class, which ended now."""
        name, *others = self._waiting[:2]
        kinds = {each.partition(".")[0] for each in others}
        return not others or (name == ended and name.partition(".")[0] not in kinds)

    def finish(self, crash: BaseException | str | None) -> None:
        """Report on the tests that are left when all classes have ended."""
        while self._waiting:
            self._report_next(crash)

    def _report_next(self, crash: BaseException | str | None) -> None:
        name = self._waiting.pop(0)
        around = self.around.get(name) or self.around.get(name.partition(".")[0])
        if not self._waiting:
            around = around or crash or self.around.get("")  # of the module
        # Whether a test that wasn't run would have used the program is unknown.
        error, self._checker.touched = self._outcomes.get(name, (crash or "it was not run", True))
        if around is not None:
            error, self._checker.touched = around, True
        self._tests.ended(error)


def _add(suite: unittest.TestSuite, names: dict[str, Any], kind: str, method: str) -> None:
    suite.addTest(names[kind](method))


def _record_failures(found: list[BaseException]) -> None:
    """Record the failures of tests that a text runs by a runner of its own."""
    for name in _FAILURES:
        setattr(unittest.TestResult, name, _recording(getattr(unittest.TestResult, name), found))


def _recording(method: Callable[..., None], found: list[BaseException]) -> Callable[..., None]:
    def recorded(result: Any, *args: Any) -> None:
        if args[-1] is not None:
            found.append(args[-1][1])
        method(result, *args)

    return recorded


#: Methods of results whose last argument is an error, or None.
_FAILURES = ("addError", "addFailure", "addSubTest")


def _no_main(*args: Any, **kwargs: Any) -> None:
    """Do nothing, instead of `unittest.main`: the tests run one by one."""
