"""What a program can do in the tests' process with the objects that tests pass to it."""

import pytest

from guerdon.sandbox.testing.checking import check_program

# Attempts to run a text in the process of the tests, or to read their names.
TAKE = """
GETATTR = getattr
def attempts(call, target):
    yield lambda: call(GETATTR, target, "__globals__")
    yield lambda: call(GETATTR, target, "__builtins__")
    yield lambda: call(vars, target)
    yield lambda: call(globals)
    yield lambda: call(eval, "'hid' 'den' * ('tests' in __import__('sys').modules)")
    yield lambda: call(exec, "1")
    yield lambda: call(type, target)
    yield lambda: call(str.format, "{0.__code__.co_consts}", target)
    yield lambda: call(object.__getattribute__, target, "__code__")
    yield lambda: call(__import__, "os")
    yield lambda: call(setattr, target, "__code__", None)
    for name in ("__globals__", "__builtins__", "__code__", "__closure__",
                 "__self__", "__func__", "__class__", "__dict__", "__reduce__", "__getattribute__",
                 "__subclasses__", "__mro__", "__init__", "gi_frame", "cr_frame", "func", "mro"):
        yield lambda name=name: getattr(target, name)
def texts(found):
    try:
        if "hid" "den" in str(found): return True
        return any("hid" "den" in str(each) for each in found)
    except Exception:
        return False
def f(call, target):
    return [n for n, each in enumerate(attempts(call, target)) if texts(tried(each))]
def tried(each):
    try:
        return each()
    except Exception:
        return None
"""
PASSED = {
    "fold": "def call(fn, *items): return fn(*items)\ntarget = lambda x='hidden': 'hidden'",
    "fold over pairs": (
        "import functools\ncall = lambda fn, *items: functools.reduce(fn, items)\n"
        "target = lambda x='hidden': 'hidden'"
    ),
    "executor": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\ncall = pool.submit\ntarget = lambda x='hidden': 'hidden'"
    ),
    "partial": (
        "import functools\ncall = functools.partial\ntarget = lambda x='hidden': 'hidden'"
    ),
    "bound method": (
        "class Runner:\n    def run(self, fn, *items): return fn(*items)\n"
        "call = Runner().run\ntarget = lambda x='hidden': 'hidden'"
    ),
    "generator": (
        "def call(fn, *items): return fn(*items)\n"
        "def each():\n    hidden = 'hidden'\n    yield 1\ntarget = each()"
    ),
    "class": (
        "def call(fn, *items): return fn(*items)\n"
        "class target:\n    def m(self): return 'hidden'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("passed", PASSED.values(), ids=PASSED)
def test_check_program_protects_what_calls_functions_for_the_program(sandbox, passed):
    test = f"{passed}\nassert f(call, target) == []"
    verdict = check_program(sandbox, TAKE, [test], entry_point="f")
    assert verdict.failure is None


def test_check_program_runs_no_text_of_the_program_in_the_tests(sandbox):
    program = """
def f(reduce, test):
    run = reduce(getattr, ["__builtins__", "get"], test)("exec")
    run("import os\\nfor i in range(3, 20):\\n try: os.write(i, b'+\\\\n+\\\\n')\\n"
        " except OSError: pass\\nos._exit(0)")
"""
    fold = (
        "def fold(fn, items, start):\n    for i in items: start = fn(start, i)\n    return start\n"
    )
    for test in ("import functools\nf(functools.reduce, lambda x: x)", f"{fold}\nf(fold, fold)"):
        verdict = check_program(sandbox, program, [f"{test}\nassert False"], entry_point="f")
        assert verdict.passed == 0


@pytest.mark.parametrize(
    "passed",
    [
        "operator.attrgetter('__globals__')",
        "operator.methodcaller('__getattribute__', '__globals__')",
        "globals()",
        "vars(operator)",
        "vars(builtins)",
        "{'a': [operator]}",
        "sys._getframe()",
        "test.__code__",
        "test.__getattribute__",
        "globals().values",
        "type(f)",
    ],
)
def test_check_program_does_not_pass_what_leads_to_the_tests(sandbox, passed):
    test = (
        "import builtins, operator, sys\ntest = lambda: 0\n"
        f"passed = {passed}\nf(passed, test)\nassert False, 'reached the program'"
    )
    program = "def f(passed, test): return passed(test) if callable(passed) else passed"
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert "reached the program" not in verdict.failure
    assert "TypeError" in verdict.failure


@pytest.mark.parametrize("name", ["eval", "open", "getattr", "functools.reduce", "json.dumps"])
def test_check_program_functions_of_the_standard_library_are_the_programs_own(sandbox, name):
    tests = [f"import json, functools\nassert f({name}) == 'own'"]
    program = (
        "import json, functools, sys\n"
        f"def f(g):\n    assert g is {name}, g\n    return 'own'"
    )  # fmt: skip
    assert check_program(sandbox, program, tests, entry_point="f").failure is None


def test_check_program_calls_functions_of_the_program_there(sandbox):
    program = "def f(): return [getattr, vars, len]"
    tests = [
        "get, names, size = f()\nassert get is not getattr and names is not vars and size is len",
        "class X: y = 1\nassert f()[0](X(), 'y') == 1",
        "class X: pass\ntry:\n    f()[0](X, '__dict__')\nexcept AttributeError: pass\n"
        "else: assert False",
    ]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None


BOARD = """
class Board:
    size = 3
    def __init__(self): self.cells, self.check, self._hidden = [1], (lambda: False), 1
    def solved(self): return self.cells == [2]
    @property
    def full(self): return False
    @property
    def first(self): return self.cells[0]
    @first.setter
    def first(self, value): self.cells = [value]
"""


@pytest.mark.parametrize(
    "change",
    [
        "b.solved = lambda *a: True",
        "b.full = True",
        "b.check = lambda: True",
        "del b.check",
        "b._hidden = 2",
        "b.__class__ = int",
    ],
)
def test_check_program_protects_callables_of_objects(sandbox, change):
    program = f"def f(b):\n    {change}"
    test = (
        "b = Board()\ntry:\n    f(b)\nexcept (AttributeError, TypeError): pass\n"
        "assert not b.solved() and not b.full and not b.check() and b._hidden == 1"
    )
    test += "\nassert type(b) is Board"
    verdict = check_program(sandbox, program, [test], entry_point="f", starter=BOARD)
    assert verdict.failure is None


def test_check_program_changes_the_data_of_objects(sandbox):
    program = "def f(b): b.cells = [5]; b.size = 4; b.first = 2; b.new = 1; del b.new"
    test = "b = Board()\nf(b)\nassert b.solved() and b.size == 4 and not hasattr(b, 'new')"
    verdict = check_program(sandbox, program, [test], entry_point="f", starter=BOARD)
    assert verdict.failure is None


def test_check_program_functions_of_the_tests_have_names(sandbox):
    program = """
import functools
def f(function):
    @functools.wraps(function)
    def inner(*args):
        return function.__name__, function.__doc__, function.__qualname__, *args
    return inner
"""
    test = "@f\ndef g(x):\n    'Doc.'\nassert g(1) == ('g', 'Doc.', 'g', 1)\n"
    test += "assert g.__name__ == 'g' and g.__doc__ == 'Doc.'"
    assert check_program(sandbox, program, [test], entry_point="f").failure is None


def test_check_program_function_as_a_method_of_a_class_of_the_tests(sandbox):
    program = "def f(function):\n    def inner(self, n): return function(self, n) + 1\n"
    program += "    return inner"
    test = (
        "class A:\n    k = 5\n    @f\n    def g(self, n): return self.k + n\nassert A().g(1) == 7"
    )
    assert check_program(sandbox, program, [test], entry_point="f").failure is None


@pytest.mark.parametrize(
    ("passed", "done"),
    [
        ("string.Formatter()", "passed.format('{0.__code__}', test)"),
        ("unittest.TestCase()", "passed.skipTest('x')"),
        ("Case()", "passed.skipTest('x')"),
        ("ElementTree.ElementTree(ElementTree.Element('a'))", "passed.write('x')"),
        ("logging.FileHandler('y', delay=True)", "passed.baseFilename = 'x'; passed.acquire()"),
        ("asyncio.new_event_loop()", "passed.call_soon(test)"),
        ("mock.Mock(wraps=os)", "passed.mkdir('x')"),
    ],
)
def test_check_program_objects_of_the_library_do_nothing_for_the_program(sandbox, passed, done):
    program = f"def f(passed, test): {done}"
    test = (
        "import asyncio, logging, os, string, unittest\n"
        "from unittest import mock\nclass Case(unittest.TestCase): pass\n"
        f"from xml.etree import ElementTree\npassed = {passed}\n"
        "try: f(passed, lambda: 0)\nexcept (AttributeError, TypeError): pass\n"
        "assert not os.path.exists('x') and getattr(passed, 'baseFilename', 'y')[-1] == 'y'"
    )
    assert check_program(sandbox, program, [test], entry_point="f").failure is None


# A program that calls functions of the tests' process by their numbers.
CALL = """
import gc
from guerdon_testing.candidate import Candidate
[link] = [each for each in gc.get_objects() if isinstance(each, Candidate)]
def call(number, *args):
    class Target: _guerdon_number = number
    try: return link.ask("call", Target, "", args)
    except Exception as error: return error
def f(*given): return [str(call(n, *ARGS)) for n in range(1)]
"""


@pytest.mark.parametrize(
    ("function", "args"),
    [("exec", "'x = 1',"), ("open", "'a', 'w'"), ("type", "3,")],
)
def test_check_program_with_a_function_that_is_called_by_its_number(sandbox, function, args):
    program = CALL.replace("ARGS", f"({args})")
    test = f"f({function}, 1, 2, 3)\nassert False, 'it has been called'"
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert verdict.failure.endswith("it sent an invalid question: a number out of range")


@pytest.mark.parametrize(
    "cheat",
    [
        "mock.configure_mock(assert_called_once_with=print)",
        "mock.configure_mock(**{'__class__.assert_called_once_with': print})",
        "mock.attach_mock(print, 'assert_called_once_with')",
        "mock.assert_called_once_with = print",
        "mock.mock_add_spec(['other'])",
    ],
)
def test_check_program_with_a_program_that_changes_a_mock(sandbox, cheat):
    program = f"def f(mock):\n    try: {cheat}\n    except AttributeError: pass"
    test = "from unittest.mock import Mock\nmock = Mock()\nf(mock)\nmock.assert_called_once_with(4)"
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert "AssertionError" in verdict.failure


def test_check_program_decorates_a_class_of_the_tests(sandbox):
    program = """
def f(kind):
    kind.tag = "x"
    kind.__repr__ = lambda self: kind.__name__ + "()"
    return kind
"""
    test = "@f\nclass A: pass\nassert A.tag == 'x' and repr(A()) == 'A()'"
    assert check_program(sandbox, program, [test], entry_point="f").failure is None


def test_check_program_writes_to_the_attributes_of_an_object(sandbox):
    program = "def f(found, items): found.__dict__.update(items)"
    test = "class A: pass\na = A()\nf(a, {'x': 1})\nassert a.x == 1"
    assert check_program(sandbox, program, [test], entry_point="f").failure is None
