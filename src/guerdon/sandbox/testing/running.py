"""Running the tests: each with names of its own, those of `unittest` as `unittest` runs them.

Runs inside a sandbox, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import sys
import unittest
from collections.abc import Callable
from functools import partial
from itertools import groupby
from types import ModuleType
from typing import Any

from . import raised, remote

__all__ = ["Tests"]

MODULE = "solution"  # what tests call the program's module
TYPE = "_guerdon_type"


class Names(dict[str, Any]):
    """Python's own names, and where it has none, what the program calls by that name.

    Args:
        entry_point: A name of the program in any case, such as ``sum``.
        named: Returns the program's object of a name.
    """

    def __init__(self, entry_point: str, named: Callable[[str], Any]) -> None:
        super().__init__(vars(builtins), issubclass=_issubclass, super=_super, **{TYPE: _type})
        self.pop(entry_point, None)
        self._named = named

    def __missing__(self, name: str) -> Any:
        return self._named(name)


class _Types(ast.NodeTransformer):
    """Replaces ``type(x)`` and ``x.__class__`` by calls of `_type`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_type = isinstance(node.func, ast.Name) and node.func.id == "type"
        if is_type and len(node.args) == 1 and not node.keywords:
            node.func.id = TYPE  # type: ignore[attr-defined]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != "__class__" or not isinstance(node.ctx, ast.Load):
            return node
        function = ast.Name(TYPE, ast.Load())
        return ast.copy_location(ast.Call(function, [node.value], []), node)


def _type(value: Any) -> Any:
    """Return the class of a value; of an object of the program, its class there."""
    if not remote.is_remote(value):
        return type(value)
    found = value.__class__
    if found is not type(value) and found.__name__ == type(value).__name__:
        return found  # of the standard library
    handle: Any = remote.handle_of(value)
    return handle._guerdon_link.ask("get", handle, "__class__")


def _issubclass(kind: Any, of: Any) -> bool:
    if isinstance(of, tuple):
        return any(_issubclass(kind, each) for each in of)
    if remote.is_remote(of):
        return bool(of.__subclasscheck__(kind))
    if not remote.is_remote(kind):
        return issubclass(kind, of)
    return bool(kind._guerdon_link.ask("library", kind, "builtins.issubclass", (of,)))


def _super(*args: Any) -> Any:
    if not args:
        frame = sys._getframe(1)
        names = frame.f_locals
        args = names["__class__"], names[frame.f_code.co_varnames[0]]
    if not remote.is_remote(args[0]):
        return super(*args)
    return remote.Super(args[0]._guerdon_link.ask("super", args[0], "", args[1:]))


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
        self._has_failed = False

    def run(self) -> None:
        """Run all tests, and report on each."""
        try:
            names = self._fresh()
        except BaseException as error:
            self._report({"starter": raised.describe(error)})
            return
        loaded = self._checker.loaded()
        if "loaded" not in loaded:
            self._report(loaded)
            return
        self._report("loaded")
        for text, units in self._job["tests"]:
            names = names or self._fresh()
            self._checker.share(names, loaded.get("classes"))
            self._text(text, units, names)
            names = {}
            self._checker.common.clear()

    def _fresh(self) -> dict[str, Any]:
        """Return names for a text, which shares nothing with another one."""
        module = sys.modules["tests"] = ModuleType("tests")
        module.__dict__["__builtins__"] = self._builtins
        exec(self._starter, module.__dict__)
        module.__dict__.pop(self._job["entry_point"], None)
        return module.__dict__

    def _text(self, source: str, units: list[str], names: dict[str, Any]) -> None:
        """Run a text, and those of its tests that it doesn't run itself."""
        checker = self._checker
        text: Any = source
        if "type(" in source or "__class__" in source:
            text = ast.fix_missing_locations(_Types().visit(ast.parse(source)))
        code = compile(text, "<test>", "exec", dont_inherit=True)
        self._import_program(source)
        checker.watch(source)
        checker.source = source
        cases = _Cases()
        checker.touched = False
        error = self.attempt(partial(exec, code, names)) or cases.failure
        touched = checker.touched
        cases.close()
        if error is not None:  # the others can't be run
            for _ in units:
                self._ended(error)
            return
        if units[0] == "":
            self._ended(None)
        for are_methods, names_of in groupby(filter(None, units), lambda name: "." in name):
            if are_methods:
                self._methods(list(names_of), names, touched)
                continue
            for name in names_of:
                checker.touched = touched
                self._ended(self.attempt(partial(self._function, name, names)))

    def _function(self, name: str, names: dict[str, Any]) -> None:
        args = [eval(self._job["entry_point"], names)] if name == "check" else []
        result = names[name](*args)
        if hasattr(type(result), "__await__"):
            import asyncio

            asyncio.run(_awaited(result))

    def _methods(self, methods: list[str], names: dict[str, Any], touched: bool) -> None:
        """Run methods of classes of `unittest`, and report on each as soon as it has ended."""
        waiting = list(methods)
        outcomes: dict[str, Any] = {}

        def ended(name: str, error: BaseException | str | None, touched: bool) -> None:
            outcomes[name] = error, touched
            while len(waiting) > 1 and waiting[0] in outcomes:  # the last one ends with its class
                report_next()
            self._checker.touched = False

        def report_next() -> None:
            error, self._checker.touched = outcomes[waiting.pop(0)]
            self._ended(error)

        result = _Result(self, touched, ended)
        suite = unittest.TestSuite()
        for name in methods:
            kind, _, method = name.partition(".")
            error = self.attempt(partial(_add, suite, names, kind, method))
            if error is not None:
                ended(name, error, True)
        self._checker.touched = touched
        crash = self.attempt(partial(suite.run, result))
        while waiting:
            error = result.around.get(waiting[0].partition(".")[0])
            error = error or (crash if len(waiting) == 1 else None)
            if waiting[0] not in outcomes:
                outcomes[waiting[0]] = error or crash or "it was not run", True
            elif error is not None:  # in what comes after the last test
                outcomes[waiting[0]] = error, True
            report_next()

    def attempt(self, action: Callable[[], object]) -> BaseException | str | None:
        """Do something, and return why it failed."""
        self.begin()
        error: BaseException | None = None
        try:
            action()
        except BaseException as fault:  # SystemExit too
            error = fault
            if isinstance(fault, MemoryError):
                self._report("memory")
        return self.fault() or error

    @property
    def touched(self) -> bool:
        """Whether the present test has used the program."""
        return bool(self._checker.touched)

    @touched.setter
    def touched(self, touched: bool) -> None:
        self._checker.touched = touched

    def begin(self) -> None:
        """Forget what the program did before a test."""
        self._checker.left, self._checker.swallowed = "", None

    def fault(self) -> str | None:
        """Return what the program did in a test that makes it fail in any case."""
        checker = self._checker
        if checker.broken:
            checker.lose(checker.broken)  # even if the test has caught it
        if checker.left:
            return str(checker.left)
        if checker.swallowed is not None:
            return "the program has caught a failed assertion of the test"
        return None

    def _ended(self, error: BaseException | str | None) -> None:
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
    """Receives from `unittest` how each test ended.

    Args:
        tests: The tests of the job.
        touched: Whether what comes before each test has used the program.
        ended: Receives the name of a test, why it failed, and whether it has used the program.

    Attributes:
        around: Why a class couldn't be set up or torn down, by its name.
    """

    def __init__(self, tests: Tests, touched: bool, ended: Callable[..., None]) -> None:
        super().__init__()
        self._tests, self._touched, self._tell = tests, touched, ended
        self._errors: list[BaseException | str] = []
        self._has_passed = False
        self.around: dict[str, BaseException] = {}

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self._errors, self._has_passed = [], False
        self._tests.begin()
        # What `setUpClass` has used, too.
        self._touched = self._tests.touched = self._tests.touched or self._touched

    # The methods that are overridden format the error, which may call the program.

    def addError(self, test: Any, err: Any) -> None:
        self._errors.append(err[1])
        if not isinstance(test, unittest.TestCase):  # such as "setUpClass (tests.Case)"
            self.around[str(test).rpartition(".")[2].rstrip(")")] = err[1]

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
        error = self._tests.fault() or own
        self._tell(f"{type(test).__name__}.{test._testMethodName}", error, self._tests.touched)


class _Cases:
    """The tests of `unittest` that a text runs itself, as by a runner of its own.

    Attributes:
        failure: The first failure of one of them that no exception has reported.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._main = unittest.main
        self._methods = {name: getattr(unittest.TestResult, name) for name in _FAILURES}
        unittest.main = lambda *args, **kwargs: None  # type: ignore[assignment]
        for name, method in self._methods.items():
            setattr(unittest.TestResult, name, self._noting(method))

    def _noting(self, method: Callable[..., None]) -> Callable[..., None]:
        def noted(result: Any, *args: Any) -> None:
            if args[-1] is not None and self.failure is None:
                self.failure = args[-1][1]
            method(result, *args)

        return noted

    def close(self) -> None:
        """Restore `unittest`."""
        unittest.main = self._main
        for name, method in self._methods.items():
            setattr(unittest.TestResult, name, method)


#: Methods of results whose last argument is an error, or None.
_FAILURES = ("addError", "addFailure", "addSubTest")


def _add(suite: unittest.TestSuite, names: dict[str, Any], kind: str, method: str) -> None:
    suite.addTest(names[kind](method))


async def _awaited(value: Any) -> Any:
    return await value
