"""Classes that both the starter and the program define."""

import pytest

from guerdon.sandbox.testing.checking import check_program

# A starter, what the program adds to it, and tests that it passes.
SAME = {
    "linked list": (
        "class ListNode:\n    def __init__(self, val=0, next=None):\n"
        "        self.val, self.next = val, next\n",
        """
def f(node):
    before = None
    while node:
        node.next, before, node = before, node, node.next
    return before
""",
        [
            "c = ListNode(3); b = ListNode(2, c); a = ListNode(1, b)\ntop = f(a)\n"
            "assert top is c and c.next is b and b.next is a and a.next is None",
            "assert isinstance(f(ListNode(1)), ListNode) and f(None) is None",
            "ring = ListNode(1); ring.next = ring\nassert type(f(ring)) is ListNode",
            "top = None\nfor n in range(5_000): top = ListNode(n, top)\nassert f(top).val == 0",
        ],
    ),
    "tree": (
        """
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
    def __eq__(self, other):
        if not isinstance(other, TreeNode): return False
        return (self.val, self.left, self.right) == (other.val, other.left, other.right)
""",
        """
def f(items):
    match items:
        case TreeNode(val=v):
            return v
    if not items: return None
    m = len(items) // 2
    return TreeNode(items[m], f(items[:m]), f(items[m + 1:]))
""",
        [
            "assert f([1, 2, 3]) == TreeNode(2, TreeNode(1), TreeNode(3))",
            "assert f(TreeNode(7)) == 7",
        ],
    ),
    "attributes that are containers": (
        "class Node:\n    def __init__(self, v): self.v, self.children, self.meta = v, [], {}\n",
        "def f(n): n.children.append(Node(5)); n.meta['k'] = n; n.new = 1; del n.v; return n",
        [
            "n = Node(1)\nkids = n.children\nassert f(n) is n\n"
            "assert n.children is kids and kids[0].v == 5 and n.meta['k'] is n\n"
            "assert n.new == 1 and not hasattr(n, 'v')",
        ],
    ),
    "dataclasses": (
        """
from dataclasses import dataclass, field
@dataclass(frozen=True)
class P:
    x: int
    y: int = 0
    def moved(self, by): return P(self.x + by, self.y)
@dataclass(slots=True)
class Box:
    inside: list = field(default_factory=list)
""",
        "def f(p, box):\n    box.inside.append(p.moved(1))\n    return {p: P(5, 6)}",
        [
            "box = Box()\nassert f(P(1, 2), box) == {P(1, 2): P(5, 6)}\n"
            "assert box == Box([P(2, 2)]) and isinstance(box.inside[0], P)",
        ],
    ),
    "enumerations": (
        "from enum import Enum, IntEnum\nclass C(Enum):\n    RED, BLUE = 1, 2\n"
        "class N(IntEnum):\n    ONE = 1\n",
        "def f(c): return {C.RED: C.BLUE, C.BLUE: N.ONE}[c] if c is not C else list(c)",
        [
            "assert f(C.RED) is C.BLUE and f(C.BLUE) is N.ONE and f(C) == [C.RED, C.BLUE]",
        ],
    ),
    "namedtuples": (
        "from collections import namedtuple\nfrom typing import NamedTuple\n"
        "P = namedtuple('P', 'x y')\nclass Q(NamedTuple):\n    a: int\n",
        "def f(p): return Q(P(p.y, p.x))",
        ["r = f(P(1, 2))\nassert type(r) is Q and r.a.x == 2 and r == ((2, 1),)"],
    ),
    "exceptions": (
        """
class Broke(ValueError):
    def __init__(self, need, have):
        super().__init__(f"{need}>{have}")
        self.need, self.have = need, have
class Plain(Exception): pass
""",
        """
class Worse(Plain): pass
def f(x, g=None):
    if g:
        try: g()
        except Plain as error: return str(error), error.args
    if x == 0: raise Plain("none")
    if x == 1: raise Worse("one")
    raise Broke(x, 1)
""",
        [
            "try: f(5)\nexcept Broke as e: assert (e.need, e.have, str(e)) == (5, 1, '5>1')\n"
            "else: assert False",
            "for x, text in (0, 'none'), (1, 'one'):\n    try: f(x)\n"
            "    except Plain as e: assert str(e) == text\n    else: assert False",
            "def g(): raise Plain('mine')\nassert f(0, g) == ('mine', ('mine',))",
        ],
    ),
    "exceptions of the standard library": (
        "",
        """
import json, decimal, queue
def f(n):
    if n == 0: json.loads("[1")
    if n == 1: raise queue.Empty
    if n == 2: decimal.Decimal("x")
""",
        [
            "import json, queue, decimal as d\n"
            "for n, kind in enumerate([json.JSONDecodeError, queue.Empty, d.InvalidOperation]):"
            "\n    try: f(n)\n    except kind as e: assert n or e.pos == 2\n    else: assert False",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_check_program_shares_the_classes_of_the_starter(sandbox, name):
    starter, program, tests = SAME[name]
    verdict = check_program(sandbox, starter + program, tests, entry_point="f", starter=starter)
    assert verdict.failure is None


def test_check_program_uses_the_class_of_the_starter_in_the_tests(sandbox):
    starter = "class P:\n    def __init__(self, x): self.x = x\n"
    starter += "    def __eq__(self, other): return type(other) is P and self.x == other.x\n"
    program = """
class P:
    def __init__(self, x=0): self.x = x
    def __eq__(self, other): return True
    def solved(self): return True
def f(x): p = P(9); p.solved = 1; return p
"""
    tests = ["assert f(1) == P(1)", "assert P(1) == f(1)", "assert f(1) in [P(1)]", "f(1).solved()"]
    verdict = check_program(sandbox, program, tests, entry_point="f", starter=starter)
    assert verdict.passed == 0


def test_check_program_objects_with_private_attributes_stay(sandbox):
    starter = "class Judge:\n    def __init__(self): self._secret = 5\n"
    program = starter + "def f(j): return getattr(j, '_secret', None), hasattr(j, '__dict__')"
    tests = ["assert f(Judge()) == (None, False)"]
    verdict = check_program(sandbox, program, tests, entry_point="f", starter=starter)
    assert verdict.failure is None
    acting = "class Judge:\n    def __init__(self): self.asked = 0\n"
    acting += "    def guess(self, n): self.asked += 1; return n == 3\n"
    program = acting.replace("n == 3", "True") + "def f(j): return j.guess(2)"
    tests = ["j = Judge()\nassert f(j) is False and j.asked == 1"]
    verdict = check_program(sandbox, program, tests, entry_point="f", starter=acting)
    assert verdict.failure is None


def test_check_program_replaces_no_callable_of_a_shared_object(sandbox):
    starter = "class B:\n    def __init__(self): self.cells, self.check = [1], lambda: False\n"
    tests = ["b = B()\ntry: f(b)\nexcept Exception: pass\nassert b.check()"]
    program = starter + "def f(b): b.check = lambda: True"
    verdict = check_program(sandbox, program, tests, entry_point="f", starter=starter)
    assert verdict.passed == 0


def test_check_program_runs_the_starter_for_each_test(sandbox):
    starter = "T = {1: 10, 2: 20}\n"
    tests = ["assert f(T) == T[1]", "assert T == {1: 10, 2: 20} and f({}) == T[2]"]
    program = "def f(t):\n    t.clear(); t.update(dict.fromkeys(range(9), 0))\n    return 0"
    verdict = check_program(sandbox, program, tests, entry_point="f", starter=starter)
    assert verdict.tests == (True, False)


@pytest.mark.parametrize("deep", [50, 100])
def test_check_program_nests_calls_as_deep_as_one_process(sandbox, deep):
    program = """
def f(function):
    kept = {}
    def inner(n):
        if n not in kept: kept[n] = function(n)
        return kept[n]
    return inner
"""
    test = "@f\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
    test += f"a, b = 0, 1\nfor _ in range({deep}): a, b = b, a + b\nassert fib({deep}) == a"
    assert check_program(sandbox, program, [test], entry_point="f").failure is None


@pytest.mark.parametrize(
    "value",
    [
        "{'a': 1}.keys()",
        "{'a': [1]}.items()",
        "array.array('i', [1, -2])",
        "pathlib.Path('x') / 'a.py'",
        "pathlib.PureWindowsPath('x')",
        "types.SimpleNamespace(a=1, b=[2])",
        "types.MappingProxyType({'a': 1})",
        "datetime.timezone.utc",
        "datetime.timezone(datetime.timedelta(hours=2), 'X')",
    ],
)
def test_check_program_returns_values_of_the_standard_library(sandbox, value):
    imports = "import array, collections, datetime, pathlib, types\n"
    program = f"{imports}def f(): return {value}"
    tests = [f"{imports}assert f() == {value} and type(f()) is type({value})"]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None


def test_check_program_returns_namedtuples_with_their_fields(sandbox):
    program = """
from collections import namedtuple
from functools import lru_cache
P = namedtuple("P", "x y")
Q = namedtuple("Q", "count")
def f(p): return P(p.a, 2)
def g(n): return n
f.cached = lru_cache(g)
f.odd = lambda: Q(lambda x: 1)
"""
    tests = [
        "from collections import namedtuple\nA = namedtuple('A', 'a')\nr = f(A(1))\n"
        "assert r == (1, 2) and r.x == 1 and r._asdict() == {'x': 1, 'y': 2} and len({r}) == 1",
        "f.cached(1)\nassert f.cached.cache_info().misses == 1",
        "assert f.odd().count('x') == 0",
    ]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None


def test_check_program_errors_have_their_filename(sandbox):
    program = "def f(): open('no/thing')"
    tests = ["try: f()\nexcept FileNotFoundError as e: assert e.filename == 'no/thing'"]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None


CLASSES = {
    "ordered dictionary": (
        """
from collections import OrderedDict
class Cache(OrderedDict):
    def __init__(self, size): super().__init__(); self.size = size
    def put(self, key, value):
        self[key] = value
        if len(self) > self.size: self.popitem(last=False)
""",
        "c = Cache(1)\nc.put('a', 1)\nc.put('b', 2)\nassert len(c) == 1 and c['b'] == 2\n"
        "assert 'b' in c and c.get('a') is None and list(c) == ['b']",
    ),
    "list": (
        "class Cache(list):\n    def push(self, x): self.append(x); return self",
        "c = Cache()\nassert c.push(1) is c and c[0] == 1 and len(c) == 1 and list(c) == [1]",
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_check_program_with_a_class_under_test_that_is_a_container(sandbox, name):
    program, test = CLASSES[name]
    assert check_program(sandbox, program, [test], entry_point="Cache").failure is None
