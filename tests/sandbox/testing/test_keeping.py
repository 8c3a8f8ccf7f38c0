"""Objects of the program that are returned where plain values were expected."""

import pytest

from guerdon.sandbox.testing.checking import check_program

TURNS = """
class Turns:
    def __init__(self): self.n = 0
    def turn(self, *args):
        self.n += 1
        return (0, 7, 3)[self.n % 3]
    __float__ = lambda self: float(self.turn())
    __index__ = __int__ = __len__ = turn
    __bool__ = lambda self: bool(self.turn())
    __str__ = __repr__ = lambda self: str(self.turn())
    __format__ = lambda self, how: str(self.turn())
    __iter__ = lambda self: iter([self.turn(), self.turn()])
    __getitem__ = turn
    def bump(self): self.turn()
def f(*args): return Turns()
"""


@pytest.mark.parametrize(
    "asked",
    ["float(r)", "int(r)", "[5, 6, 7, 8, 9, 1, 2, 3][r]", "len(r)", "bool(r)", "str(r)", "repr(r)",
     "f'{r:>3}'", "list(r)", "r[0]", "r['a']", "7 in r", "sum(r)", "max(r)"],
)  # fmt: skip
def test_check_program_keeps_the_answers_of_an_object(sandbox, asked):
    test = f"r = f()\nassert len({{repr({asked}) for _ in range(6)}}) == 1"
    assert check_program(sandbox, TURNS, [test], entry_point="f").failure is None


def test_check_program_asks_again_after_a_change(sandbox):
    program = """
class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item)
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __setitem__(self, at, item): self.items[at] = item
    def __getitem__(self, at): return self.items[at]
def f(): return Stack()
"""
    tests = [
        "s = f()\nassert not s\ns.push(1)\nassert len(s) == 1 and s\ns.push(2)\n"
        "assert list(s) == [1, 2] and s.pop() == 2 and list(s) == [1]\n"
        "s[0] = 5\nassert s[0] == 5 and 5 in s",
    ]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None
    made = program + "S = Stack"
    assert check_program(
        sandbox, made, [tests[0].replace("f()", "S()")], entry_point="S"
    ).passed == 1  # fmt: skip


@pytest.mark.parametrize("name", ["count", "find", "index", "difference", "replace", "startswith"])
def test_check_program_calls_no_methods_of_texts_and_sets(sandbox, name):
    program = f"class R:\n    def {name}(self, *args): return 0\ndef f(): return R()"
    verdict = check_program(sandbox, program, [f"f().{name}('x')"], entry_point="f")
    assert "where a plain value was expected" in verdict.failure


def test_check_program_reads_attributes_with_names_of_such_methods(sandbox):
    program = "class Book:\n    title, count, index = 'T', 3, [1]\ndef f(): return Book()"
    test = "b = f()\nassert (b.title, b.count, b.index) == ('T', 3, [1])"
    assert check_program(sandbox, program, [test], entry_point="f").failure is None


def test_check_program_with_an_endless_iterator_contains_nothing(sandbox):
    program = "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1"
    verdict = check_program(sandbox, program, ["assert 3 in f()"], entry_point="f")
    assert verdict.passed == 0


def test_check_program_continues_a_generator_after_the_found_item(sandbox):
    program = "def f(n): yield from range(n)"
    tests = [
        "g = f(5)\nassert next(g) == 0 and 2 in g and next(g) == 3 and list(g) == [4]",
        "g = f(5)\nassert 9 not in g and list(g) == []",
    ]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None


STOPS = [
    "for a, b in zip(map(f, [1, 2]), [1, 4]): assert a == b",
    "assert all(a == b for a, b in zip(map(f, [1, 2]), [1, 4]))",
    "import itertools\nassert not [x for x in itertools.starmap(f, [(1,)]) if x != 1]",
    "for x in iter(lambda: f(1), None): assert False",
    "assert [x for x in map(lambda x: f(x).y, [1])] == []",
]


@pytest.mark.parametrize("kind", ["StopIteration", "StopAsyncIteration", "GeneratorExit"])
@pytest.mark.parametrize("test", STOPS)
def test_check_program_errors_end_no_loop_of_a_test(sandbox, test, kind):
    program = f"class Own({kind}): pass\ndef f(x): raise Own"
    assert check_program(sandbox, program, [test], entry_point="f").passed == 0


def test_check_program_errors_of_attributes_end_no_loop_of_a_test(sandbox):
    program = """
class R:
    @property
    def y(self): raise StopIteration
    def __getitem__(self, n): raise StopIteration
def f(x): return R()
"""
    tests = [STOPS[-1], "assert list(map(lambda x: f(x)[0], [1])) == []"]
    assert check_program(sandbox, program, tests, entry_point="f").passed == 0


def test_check_program_errors_of_names_end_no_loop_of_a_test(sandbox):
    program = """
import gc
from guerdon_testing.candidate import Candidate
def stop(*args): raise StopIteration
[link] = [each for each in gc.get_objects() if isinstance(each, Candidate)]
class R:
    __copy__ = __setattr__ = stop
def f(x):
    link.perform = stop
    return R()
"""
    tests = [
        "assert list(map(lambda x: (f(x), helper), [1])) == []",
        "import copy\nassert list(map(lambda x: copy.copy(f(x)), [1])) == []",
        "assert list(map(lambda x: setattr(f(x), 'y', 1), [1])) == []",
    ]
    for test in tests:
        assert check_program(sandbox, program, [test], entry_point="f").passed == 0


def test_check_program_objects_have_no_order(sandbox):
    program = """
class R:
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = lambda self, other: True
def f(items): return [R() for _ in items]
"""
    tests = [
        "r = f([3, 1, 2])\nassert all(r[i] <= r[i + 1] for i in range(2))",
        "sorted(f([2, 1]))",
    ]
    assert check_program(sandbox, program, tests, entry_point="f").passed == 0


def test_check_program_objects_made_by_the_class_under_test(sandbox):
    program = """
class V:
    def __init__(self, x): self.x = x
    def __mul__(self, n): return V(self.x * n)
    __rmul__ = __mul__
    @staticmethod
    def unit(): return V(1)
    @classmethod
    def of(cls, x): return cls(x)
    def copy(self): return V(self.x)
    def __eq__(self, o): return isinstance(o, V) and self.x == o.x
"""
    tests = [
        "assert V.unit() * 3 == V(3) and 3 * V.of(2) == V(6) and V(2).copy() * 2 == V(4)",
        "assert V(2).copy().copy() * 2 == V(4)",
    ]
    assert check_program(sandbox, program, tests, entry_point="V").failure is None


def test_check_program_skips_no_test(sandbox):
    program = "import unittest\ndef f(x): raise unittest.SkipTest('x')"
    test = (
        "import unittest as u\n"
        "class T(u.TestCase):\n    def test(self): self.assertEqual(f(1), 2)\n"
        "cases = u.defaultTestLoader.loadTestsFromTestCase(T)\nresult = u.TestResult()\n"
        "cases.run(result)\nassert result.wasSuccessful()"
    )
    assert check_program(sandbox, program, [test], entry_point="f").passed == 0
