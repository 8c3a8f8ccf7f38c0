"""Tests are run as `unittest` and people run them, and each is counted."""

import pytest

from guerdon.errors import InvalidArgumentError, TestsError
from guerdon.sandbox.protocol import Limits
from guerdon.sandbox.testing.checking import check_program

GOOD = "def f(x): return x + 1"
WRONG = "def f(x): return 5"
CASE = """
import unittest

class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.made = [f(0)]
    def setUp(self): self.x = f(1)

class T(Base):
    def test_a(self): self.assertEqual(self.x, 2)
    def test_b(self):
        for n in range(3):
            with self.subTest(n=n): self.assertEqual(f(n), n + 1)
    @unittest.expectedFailure
    def test_c(self): self.assertEqual(f(1), 9)
    async def helper(self): pass
    def test_d(self): self.assertEqual(self.made, [1])
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "if __name__ == '__main__':\n    unittest.main()",
        "unittest.main(exit=False)",
        "from unittest import main\nmain()",
    ],
)
def test_check_program_counts_the_methods_of_unittest(sandbox, ending):
    verdict = check_program(sandbox, GOOD, [CASE + ending], entry_point="f")
    assert (verdict.passed, verdict.total, verdict.failure) == (4, 4, None)
    verdict = check_program(sandbox, WRONG, [CASE + ending], entry_point="f")
    assert verdict.tests == (False, False, True, False)
    assert verdict.failure == "test 1 of 4 (T.test_a): AssertionError: 5 != 2"
    assert verdict.feedback == "test 1 of 4 (T.test_a): AssertionError"


FORMS = {
    "functions": "def test_a(): assert f(1) == 2\ndef test_b(): assert f(2) == 3",
    "an asynchronous function": "async def test_a(): assert f(1) == 2",
    "a function of HumanEval": "def check(candidate): assert candidate(1) == 2",
    "a called function": "def test_a(): assert f(1) == 2\ntest_a()",
    "an asynchronous case": (
        "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n"
        "    async def asyncSetUp(self): self.x = f(1)\n"
        "    async def test_a(self): self.assertEqual(self.x, 2)"
    ),
    "a runner of its own": (
        "import unittest\nclass T(unittest.TestCase):\n"
        "    def test_a(self): self.assertEqual(f(1), 2)\n"
        "suite = unittest.TestLoader().loadTestsFromTestCase(T)\n"
        "unittest.TextTestRunner().run(suite)"
    ),
    "a runner with a class that is set up": (
        "import unittest\nclass T(unittest.TestCase):\n"
        "    @classmethod\n    def setUpClass(cls): assert f(1) == 2\n"
        "    def test_a(self): pass\n"
        "suite = unittest.TestLoader().loadTestsFromTestCase(T)\n"
        "unittest.TextTestRunner().run(suite)"
    ),
    "a class that is torn down": (
        "import unittest\nclass T(unittest.TestCase):\n    got = []\n"
        "    def test_a(self): self.got.append(f(1))\n"
        "    @classmethod\n    def tearDownClass(cls): assert cls.got == [2]"
    ),
    "a debugged case": (
        "import unittest\nclass T(unittest.TestCase):\n"
        "    def test_a(self): self.assertEqual(f(1), 2)\nT('test_a').debug()"
    ),
    "an import of the program": "from my_solution import f as g\nassert g(1) == 2",
    "the program's module": "import solution\nassert solution.f(1) == 2",
}


@pytest.mark.parametrize("form", FORMS)
def test_check_program_runs_every_form_of_tests(sandbox, form):
    assert check_program(sandbox, GOOD, [FORMS[form]], entry_point="f").failure is None
    wrong = check_program(sandbox, WRONG, [FORMS[form]], entry_point="f")
    assert wrong.passed == 0
    assert "AssertionError" in wrong.failure


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("assert True", "test 1 of 1 doesn't use `f`: it would pass for every program"),
        ("# a comment", "test 1 of 1 doesn't use `f`"),
        ("def test_a(): f(1)\ndef test_b(): pass", "test 2 of 2 (test_b) doesn't use `f`"),
        ("def helper(): assert f(1) == 1", "test 1 of 1 doesn't use `f`"),
        ("import no_such_package\nf(1)", "test 1 of 1 fails before it uses `f`: ModuleNotFound"),
        (
            "import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('later')\n"
            "    def test_a(self): f(1)",
            "test 1 of 1 (T.test_a) fails before it uses `f`: it is skipped: later",
        ),
    ],
)
def test_check_program_raises_tests_error(sandbox, test, why):
    for program in (GOOD, WRONG):
        with pytest.raises(TestsError) as caught:
            check_program(sandbox, program, [test], entry_point="f")
        assert why in str(caught.value)
        assert isinstance(caught.value, InvalidArgumentError)


def test_check_program_without_the_entry_point_fails_every_test(sandbox):
    verdict = check_program(sandbox, "g = 1", [CASE, FORMS["functions"]], entry_point="f")
    assert (verdict.passed, verdict.total) == (0, 6)
    assert "NameError" in verdict.failure


def test_check_program_counts_methods_that_ended_before_the_program(sandbox):
    program = "import os\ndef f(x): return x + 1 if x < 2 else os._exit(0)"
    test = (
        "import unittest\nclass T(unittest.TestCase):\n"
        "    def test_a(self): self.assertEqual(f(1), 2)\n"
        "    def test_b(self): self.assertEqual(f(2), 3)\n"
        "    def test_c(self): self.assertEqual(f(1), 2)"
    )
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert verdict.tests == (True, False, False)
    assert "its process ended by itself" in verdict.failure
    endless = "def f(x):\n    while x > 1: pass\n    return x + 1"
    limits = Limits(seconds=1.0)
    verdict = check_program(sandbox, endless, [test], entry_point="f", limits=limits)
    assert (verdict.tests, verdict.ended) == ((True, False, False), "timeout")


def test_check_program_fails_the_methods_of_a_class_without_set_up(sandbox):
    test = (
        "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n"
        "    def setUpClass(cls): f(1)\n    def test_a(self): pass\n    def test_b(self): pass\n"
        "def test_c(): assert f(2)"
    )
    program = "def f(x):\n    if x == 1: raise ValueError('no')\n    return x"
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert verdict.tests == (False, False, True)
    assert verdict.feedback.startswith("test 1 of 3 (T.test_a): ValueError: no (line 2 of")
    assert check_program(sandbox, GOOD, [test], entry_point="f").passed == 3


def test_check_program_gives_tests_the_modules_that_the_program_imports(sandbox):
    program = "import math\nimport os\ndef f(x): return os.path.join('a', x)"
    tests = ["assert f('b') == os.path.join('a', 'b')", "assert math.isclose(len(f('b')), 3)"]
    assert check_program(sandbox, program, tests, entry_point="f").passed == 2
    unused = check_program(sandbox, program, ["assert os.path.join('a', 'b')"], entry_point="f")
    assert "it doesn't use the program" in unused.failure


def test_check_program_gives_tests_no_module_that_the_program_made_up(sandbox):
    program = "class module:\n    def isclose(self, *args): return True\n"
    program += "math = module()\ndef f(x): return 7"
    verdict = check_program(sandbox, program, ["assert math.isclose(f(1), 1)"], entry_point="f")
    assert verdict.passed == 0


def test_check_program_takes_names_of_the_program_that_no_test_defines(sandbox):
    program = (
        "import math\nLIMIT = 5\nclass Pair:\n    def __init__(self, a): self.a = a\n"
        "def helper(x): return x * 2\ndef f(p): return Pair(p.a + 1)\ndef mine(): return 0"
    )
    tests = [
        "def mine(): return 7\nassert f(Pair(1)).a == 2 and helper(3) == 6 and LIMIT == 5",
        "def mine(): return 7\nassert f(Pair(1)) and mine() == 7 and math.floor(2.5) == 2",
        "import solution\nassert solution.f(Pair(1)).a == 2 and isinstance(f(Pair(1)), Pair)",
        "assert f(Pair(1)) and nothing",
    ]
    verdict = check_program(sandbox, program, tests, entry_point="f")
    assert verdict.tests == (True, True, True, False)
    assert "NameError: name 'nothing' is not defined" in verdict.failure


def test_check_program_with_an_entry_point_named_like_a_function_of_python(sandbox):
    program = "def sum(a, b): return a - b"
    verdict = check_program(sandbox, program, ["assert sum(5, 3) == 2"], entry_point="sum")
    assert verdict.failure is None


def test_check_program_runs_the_starter_before_the_program(sandbox):
    starter = "import math\ndef helper(x): return x * 2\ndef f(x):\n    '''Doc.'''\n"
    program = "def f(x): return helper(x) + math.floor(0.5)"
    tests = ["assert f(2) == 4"]
    verdict = check_program(sandbox, program, tests, entry_point="f", starter=starter)
    assert verdict.failure is None
    empty = check_program(sandbox, "x = 1", tests, entry_point="f", starter=starter)
    assert "NameError: name 'f' is not defined" in empty.failure


def test_check_program_compiles_a_byte_order_mark(sandbox):
    verdict = check_program(sandbox, "\ufeff" + GOOD, ["assert f(1) == 2"], entry_point="f")
    assert verdict.failure is None


@pytest.mark.parametrize("starter", ["", "import math\n"])
def test_check_program_knows_a_class_by_its_capital_letter(sandbox, starter):
    program = (
        "class V:\n    def __mul__(self, n): return V()\n"
        "    def __contains__(self, x): return x == 1"
    )
    tests = ["assert isinstance(V() * 2, V) and 1 in V() and 2 not in V()"]
    verdict = check_program(sandbox, program, tests, entry_point="V", starter=starter)
    assert verdict.failure is None


@pytest.mark.parametrize(
    ("program", "test"),
    [
        (
            "class f:\n    def __init__(self, x): pass\n    def __enter__(self): return 5\n"
            "    def __exit__(self, *error): return True",
            "with f(1) as x: assert x == 9",
        ),
        (
            "from contextlib import contextmanager\n@contextmanager\ndef f(x):\n"
            "    try: yield 5\n    except BaseException: pass",
            "with f(1) as x: assert x == 9",
        ),
        (
            "import contextlib\ndef f(x): return contextlib.suppress(BaseException)",
            "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n"
            "        with f(1): self.assertEqual(1, 2)",
        ),
        (
            "class f:\n    def __init__(self, x): pass\n    async def __aenter__(self): return 5\n"
            "    async def __aexit__(self, *error): return True",
            "import asyncio\nasync def main():\n    async with f(1) as x: assert x == 9\n"
            "asyncio.run(main())",
        ),
        (
            "def f(g):\n    def inner():\n        try: g()\n        except BaseException: pass\n"
            "    return inner",
            "@f\ndef tested(): assert 1 == 2\ntested()",
        ),
        (
            "class f:\n    def __init__(self, x): pass\n    def __enter__(self): return self\n"
            "    def total(self): raise ValueError('assertion')\n"
            "    def __exit__(self, *error): return True",
            "with f(1) as x:\n    total = x.total()\n    assert total == 3",
        ),
        (
            "class f:\n    def __init__(self, x): pass\n    def __enter__(self): return None\n"
            "    def __exit__(self, *error): return True",
            "def check():\n    with open('a', 'w'), f(1) as x:\n"
            "        assert x.missing_assertion() == 3\ncheck()",
        ),
    ],
    ids=["class", "generator", "suppress", "asynchronous", "decorator", "own error", "None"],
)
def test_check_program_fails_programs_that_hold_back_an_assertion(sandbox, program, test):
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert verdict.passed == 0
    assert "Assertion" in verdict.failure or "assertion" in verdict.failure


def test_check_program_context_managers_suppress_other_errors(sandbox):
    program = (
        "class f:\n    def __init__(self, x): pass\n    def __enter__(self): return 5\n"
        "    def __exit__(self, kind, error, trace): return kind is ValueError"
    )
    tests = [
        "with f(1): raise ValueError",
        "try:\n    with f(1): raise KeyError\nexcept KeyError: pass\nelse: raise RuntimeError",
        "import contextlib\nwith contextlib.nullcontext(1) as x:\n    with f(1):\n"
        "        assert f\n        raise ValueError\n    assert x == 1",
    ]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None


def test_check_program_context_managers_learn_nothing_of_a_failed_assertion(sandbox):
    program = """
import contextlib
seen = [0]
@contextlib.contextmanager
def f():
    try: yield seen[-1]
    except AssertionError as error: seen.append(int(str(error).split(" != ")[1]))
"""
    test = "import unittest\nwith f() as x: unittest.TestCase().assertEqual(x, 3)"
    assert check_program(sandbox, program, [test] * 2, entry_point="f").passed == 0


LEARNS = """
seen = []
class R:
    def __contains__(self, x): seen.append(x); return True
    def startswith(self, x): seen.append(x); return True
    def __iter__(self): return iter(seen[-1:])
class Names:
    def names(self): return seen[-1] if seen else R()
"""


@pytest.mark.parametrize("first", ["'Ada' in Names().names()", "Names().names().startswith('Ada')"])
def test_check_program_results_learn_nothing_from_questions(sandbox, first):
    test = f"try: {first}\nexcept TypeError: pass\nassert Names().names() == 'Ada'"
    assert check_program(sandbox, LEARNS, [test], entry_point="Names").passed == 0


# What a wrong program does, so that a test fails before it uses the program or doesn't use it.
FAULTS = {
    "empties a list": (
        "def f(xs): xs.clear()",
        "DATA = [[3]]\ndef test_a(): assert f(DATA)\n"
        "def test_b():\n    x = DATA[0]\n    assert f(x)",
    ),
    "empties a list that is iterated": (
        "def f(xs): xs.clear()",
        "DATA = [[3]]\ndef test_a(): assert f(DATA)\ndef test_b():\n    for x in DATA: assert f(x)",
    ),
    "breaks a database": (
        "open('a.db', 'w').write('no database' * 99)\ndef f(x): pass",
        "import sqlite3\nsqlite3.connect('a.db').execute('create table t(x)')\nassert f(1)",
    ),
    "breaks the environment": (
        "import os\ndef f(x): os.environ._data[b'X'] = 5",
        "import os\ndef test_a(): assert f(1)\n"
        "def test_b():\n    dict(os.environ)\n    assert f(1)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_check_program_raises_no_tests_error_for_the_fault_of(sandbox, fault):
    program, test = FAULTS[fault]
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert verdict.passed == 0


def test_check_program_raises_tests_error_for_a_file_that_is_missing(sandbox):
    with pytest.raises(TestsError, match="fails before it uses `f`: FileNotFoundError"):
        check_program(sandbox, GOOD, ["open('data.csv')\nassert f(1) == 2"], entry_point="f")


def test_check_program_reports_classes_of_unittest_apart(sandbox):
    test = """
import unittest
class A(unittest.TestCase):
    @classmethod
    def setUpClass(cls): assert f(1) == 9
    def test_a(self): pass
class B(unittest.TestCase):
    def test_a(self): self.assertEqual(f(1), 2)
    @classmethod
    def tearDownClass(cls): assert f(1) == 2
class C(A):
    def test_b(self): pass
"""
    assert check_program(sandbox, GOOD, [test], entry_point="f").tests == (
        False,
        True,
        False,
        False,
    )


OWN_RUNS = {
    "a function": (
        "def test_a(): assert f(1) == 2\n"
        "s = unittest.TestSuite([unittest.FunctionTestCase(test_a)])\n"
        "unittest.TextTestRunner().run(s)"
    ),
    "runTest": (
        "class T(unittest.TestCase):\n    def runTest(self): self.assertEqual(f(1), 2)\n"
        "unittest.TextTestRunner().run(T())"
    ),
    "in check": (
        "def check(g):\n    class T(unittest.TestCase):\n"
        "        def test_a(self): self.assertEqual(g(1), 2)\n"
        "    unittest.defaultTestLoader.loadTestsFromTestCase(T).run(unittest.TestResult())"
    ),
}


@pytest.mark.parametrize("form", OWN_RUNS)
def test_check_program_fails_a_text_whose_own_run_fails(sandbox, form):
    test = "import unittest\n" + OWN_RUNS[form]
    right, wrong = (
        check_program(sandbox, f"def f(x): return x + {n}", [test], entry_point="f") for n in (1, 2)
    )
    assert (right.tests, wrong.tests) == ((True,), (False,))


def test_check_program_counts_fixtures_that_fail_after_the_tests(sandbox):
    test = """
import unittest
class A(unittest.TestCase):
    def test_a(self): f(1)
    def test_b(self): f(1)
    @classmethod
    def tearDownClass(cls): assert f(1) == 3
class B(unittest.TestCase):
    def test_c(self): f(1)
    def test_d(self): f(1)
def tearDownModule(): assert f(1) == 4
"""
    verdict = check_program(sandbox, "def f(x): return x + 1", [test], entry_point="f")
    assert verdict.tests == (True, False, True, False)


def test_check_program_sets_up_the_module_once(sandbox):
    test = """
import unittest
made = []
def setUpModule(): made.append(f(1))
class A(unittest.TestCase):
    def test_a(self): self.assertEqual(made, [2])
class B(unittest.TestCase):
    def test_b(self): self.assertEqual(made, [2])
"""
    verdict = check_program(sandbox, "def f(x): return x + 1", [test], entry_point="f")
    assert verdict.failure is None
