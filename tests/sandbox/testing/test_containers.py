"""Programs that return or keep a container that they should copy fail, as in one process."""

import pytest

from guerdon.sandbox.testing.checking import check_program

KEEPS = "class S:\n    def __init__(self): self.kept = {}\n    def put(self, x): {}\n"
KEEPS += "    def all(self): return {}\n"
# A wrong program, and a test that it fails.
ALIASES = {
    "a dictionary": (
        "class S:\n    kept = None\n    def all(self):\n        self.kept = self.kept or {0: 0}\n"
        "        return self.kept",
        "s = S()\ns.all()['x'] = 1\nassert s.all() == {0: 0}",
    ),
    "a set": (
        KEEPS.format("set()", "self.kept.add(x)", "self.kept"),
        "s = S()\ns.put(1)\nbefore = s.all()\ns.put(2)\nassert before == {1}",
    ),
    "a deque": (
        "from collections import deque\n"
        + KEEPS.format("deque()", "self.kept.append(x)", "self.kept"),
        "s = S()\ns.put(1)\nbefore = s.all()\ns.put(2)\nassert list(before) == [1]",
    ),
    "an inner list": (
        KEEPS.format("[[0]]", "pass", "list(self.kept)"),
        "s = S()\ns.all()[0].append(5)\nassert s.all() == [[0]]",
    ),
    "items that are iterated": (
        KEEPS.format("[[1]]", "pass", "iter(self.kept)"),
        "s = S()\nfor each in s.all(): each.append(2)\nassert list(s.all()) == [[1]]",
    ),
    "the keys of a dictionary": (
        KEEPS.format("dict()", "self.kept[x] = 1", "self.kept.keys()"),
        "s = S()\ns.put(1)\nkeys = s.all()\ns.put(2)\nassert list(keys) == [1]",
    ),
    "the values of a dictionary": (
        "kept = {}\ndef f(x):\n    kept[x] = x\n    return kept.values()",
        "values = f(1)\nf(2)\nassert list(values) == [1]",
    ),
    "the items of a dictionary": (
        "kept = {}\ndef f(x):\n    kept[x] = x\n    return kept.items()",
        "items = f(1)\nf(2)\nassert list(items) == [(1, 1)]",
    ),
    "a proxy of a dictionary": (
        "from types import MappingProxyType\nkept = {}\n"
        "def f(x):\n    kept['a'] = x\n    return MappingProxyType(kept)",
        "first = f(1)\nf(2)\nassert first['a'] == 1",
    ),
    "a default argument": (
        "def f(x, found=[]):\n    found.append(x)\n    return found",
        "assert f(1) == [1]\nassert f(2) == [2]",
    ),
    "a cached result": (
        "import functools\n@functools.lru_cache\ndef f(n): return list(range(n))",
        "f(3).append(9)\nassert f(3) == [0, 1, 2]",
    ),
    "one list of a generator": (
        "def f(n):\n    path = []\n    for i in range(n):\n        path.append(i)\n"
        "        yield path",
        "assert list(f(3)) == [[0], [0, 1], [0, 1, 2]]",
    ),
    "one list of an asynchronous generator": (
        "async def f(n):\n    path = []\n    for i in range(n):\n        path.append(i)\n"
        "        yield path",
        "import asyncio\nasync def main(): return [each async for each in f(2)]\n"
        "assert asyncio.run(main()) == [[0], [0, 1]]",
    ),
    "one list for a callback": (
        "def f(g):\n    path = []\n    for i in range(2):\n        path.append(i)\n        g(path)",
        "got = []\nf(got.append)\nassert got == [[0], [0, 1]]",
    ),
    "one list for a mock": (
        "def f(g):\n    path = []\n    for i in range(2):\n        path.append(i)\n        g(path)",
        "from unittest.mock import Mock, call\nmock = Mock()\nf(mock)\n"
        "assert mock.mock_calls == [call([0]), call([0, 1])]",
    ),
    "an attribute of the class": (
        "class S:\n    items = []\n    def put(self, x): self.items.append(x)",
        "a, b = S(), S()\na.put(1)\nassert b.items == []",
    ),
    "a shallow copy": (
        "import copy\ndef f(x): return copy.copy(x)",
        "x = {'a': [1]}\nf(x)['a'].append(2)\nassert x == {'a': [1]}",
    ),
    "dict.fromkeys": (
        "def f(keys): return dict.fromkeys(keys, [])",
        "found = f('ab')\nfound['a'].append(1)\nassert found['b'] == []",
    ),
    "rows of a matrix": (
        "def f(n): return [[0] * n] * n",
        "rows = f(2)\nrows[0][0] = 1\nassert rows == [[1, 0], [0, 0]]",
    ),
    "a bytearray": (
        "kept = bytearray(b'ab')\ndef f(): return kept",
        "f()[0] = 0\nassert f() == bytearray(b'ab')",
    ),
    "a counter": (
        "from collections import Counter\nkept = Counter()\n"
        "def f(x):\n    kept[x] += 1\n    return kept",
        "first = f(1)\nf(1)\nassert first == {1: 1}",
    ),
    "an argument": (
        "class S:\n    def __init__(self, xs): self.xs = xs\n"
        "    def total(self): return sum(self.xs)",
        "xs = [1, 2]\ns = S(xs)\nxs.append(3)\nassert s.total() == 3",
    ),
    "a part of an argument": (
        "def f(groups):\n    for each in groups.values(): each.sort()",
        "groups = {'a': [2, 1]}\nf(groups)\nassert groups == {'a': [2, 1]}",
    ),
    "a list in a tuple": (
        "kept = []\ndef f(x):\n    kept.append(x)\n    return kept, x",
        "first = f(1)\nf(2)\nassert first == ([1], 1)",
    ),
    "a list in a namedtuple": (
        "from collections import namedtuple\nR = namedtuple('R', 'xs')\nkept = []\n"
        "def f(x):\n    kept.append(x)\n    return R(kept)",
        "first = f(1)\nf(2)\nassert first.xs == [1]",
    ),
    "a list of a derived class": (
        "class L(list): pass\nkept = L()\ndef f(x):\n    kept.append(x)\n    return kept",
        "first = f(1)\nf(2)\nassert first == [1]",
    ),
    "a list in an error": (
        "kept = []\ndef f(x):\n    kept.append(x)\n    raise ValueError(kept)",
        "def args():\n    try: f(1)\n    except ValueError as error: return error.args[0]\n"
        "first = args()\nargs()\nassert first == [1]",
    ),
}


@pytest.mark.parametrize("name", ALIASES)
def test_check_program_fails_a_program_that_shares(sandbox, name):
    program, test = ALIASES[name]
    names = {}
    with pytest.raises(AssertionError):
        exec(f"{program}\n{test}", names)
    verdict = check_program(sandbox, program, [test], entry_point="S" if "S" in names else "f")
    assert verdict.failure == "test 1 of 1: AssertionError"


def test_check_program_lets_a_program_change_what_an_earlier_test_passed(sandbox):
    program = """
seen = []
def f(items):
    for each in seen: each.append(0)
    seen.append(items)
    return seen[0]
"""
    tests = ["a = [1]\nf(a)\nassert f([2]) is a and a == [1, 0]"]
    tests += ["assert f([3]) == [1] + [0] * 2", "b = f([4])\nassert b == f([5])"]
    assert check_program(sandbox, program, tests, entry_point="f").failure is None
