"""Tests see the same through the proxy as in one process with the program."""

import pytest

from guerdon.sandbox.testing.checking import check_program

# A program, its entry point, and tests that it passes.
SAME = {
    "xml elements of either side": (
        """
import xml.etree.ElementTree as ET
def f(element):
    ET.ElementTree(element).write("out.xml")
    return ET.fromstring("<a><b>1</b></a>")
""",
        "f",
        """
import xml.etree.ElementTree as ET
found = f(ET.fromstring("<c><d/></c>"))
assert found.find("b").text == "1" and ET.parse("out.xml").getroot()[0].tag == "d"
import os
os.remove("out.xml")
""",
    ),
    "values": (
        "def f(x): return x",
        "f",
        """
for value in [
    None, True, 0, -1, 2**63, -(10**5000), 1.5, -0.0, float("inf"), 1j, complex("nan").imag == 0,
    "", "é", "\\udc80", "\\ud83d\\ude00", "\\U0001f600", b"\\x00\\xff",
    [], [[]], (), ((),), {}, {1: {2: 3}}, slice(2**70), range(-(2**70), 2**70),
    {(1, 2): "x", None: 1, 1.5: 2, "k": [1], frozenset({1}): 2}, {1, 2}, frozenset({"a"}),
    range(3, 9, 2), slice(1, None, 2), ..., NotImplemented, int, ValueError, len, [1, "a", None],
]:
    back = f(value)
    assert back == value and type(back) is type(value), value
assert str(f(float("nan"))) == "nan" and str(f(-0.0)) == "-0.0"
assert f(bytearray(b"ab")) == bytearray(b"ab")
assert list(f({"b": 1, "a": 2})) == ["b", "a"]
""",
    ),
    "values of the standard library": (
        "def f(x): return x",
        "f",
        """
import datetime as d, decimal, fractions, uuid, collections as c
for value in [
    decimal.Decimal("1.10"), decimal.Decimal("NaN").is_nan(), fractions.Fraction(-1, 3),
    d.date(2020, 2, 29), d.datetime(2020, 1, 1, 2, 3, 4, 5), d.time(1, 2), d.timedelta(-1, 2, 3),
    d.datetime(2020, 1, 1, tzinfo=d.timezone.utc), uuid.UUID(int=5), c.Counter("aab"),
    c.OrderedDict([(2, 1), (1, 2)]), c.deque([1, 2], maxlen=2), c.defaultdict(int, {1: 2}),
]:
    back = f(value)
    assert back == value and type(back) is type(value), value
assert str(f(decimal.Decimal("1.10"))) == "1.10"
assert f(c.deque([1], maxlen=5)).maxlen == 5 and f(c.defaultdict(list))["new"] == []
""",
    ),
    "derived classes arrive as the plain ones": (
        """
import collections, enum
Point = collections.namedtuple("Point", "x y")
class Number(enum.IntEnum):
    ONE = 1
class Text(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
class Table(dict): pass
def f(): return [Point(1, 2), Number.ONE, Text("a"), Table(a=1)]
def g(): return collections.Counter("aab")
""",
        "f",
        "assert f() == [(1, 2), 1, 'a', {'a': 1}]",
    ),
    "arguments changed in place": (
        """
def f(items, table, group, data):
    items.sort(); items[0] = [items[0]]; table["n"] = items; group.add(9); data += b"!"
    return items
""",
        "f",
        """
items, table, group, data = [3, 1], {}, {1}, bytearray(b"a")
before = items
result = f(items, table, group, data)
assert items == [[1], 3] and items is before and result is items
assert table == {"n": items} and table["n"] is items and group == {1, 9} and data == b"a!"
""",
    ),
    "nested arguments changed in place": (
        "def f(grid):\n    for row in grid: row.reverse()\n    grid.append(grid[0])",
        "f",
        """
inner = [1, 2]
grid = [inner, inner, [3]]
assert f(grid) is None
assert grid == [[1, 2], [1, 2], [3], [1, 2]] and grid[0] is inner and grid[3] is inner
""",
    ),
    "derived arguments changed in place": (
        "def f(d, q):\n    d['x'] = 1\n    q.append(2)",
        "f",
        """
import collections as c
d, q = c.defaultdict(list, {"a": [1]}), c.deque([1])
f(d, q)
assert d == {"a": [1], "x": 1} and d["new"] == [] and q == c.deque([1, 2])
""",
    ),
    "arguments changed before an error": (
        "def f(items):\n    items.clear()\n    raise ValueError('no')",
        "f",
        """
items = [1]
try:
    f(items)
except ValueError as error:
    assert str(error) == "no" and error.args == ("no",)
assert items == []
""",
    ),
    "cycles and shared references": (
        "def f(n):\n    a = [n]\n    a.append(a)\n    b = []\n    return a, b, b, {'a': a}",
        "f",
        """
a, b, c, d = f(1)
assert a[1] is a and b is c and b is not a and d["a"] is a
x = []
x.append(x)
from_there = f(x)[0]
assert from_there[0] is x
""",
    ),
    "any depth": (
        "def f(n):\n    a = []\n    for _ in range(n): a = [a]\n    return a",
        "f",
        """
a, n = f(50_000), 0
while a:
    a, n = a[0], n + 1
assert n == 50_000
""",
    ),
    "callables": (
        """
def f(items, key, more=()):
    return sorted(items, key=key), [next(more) for _ in range(2)], callable(key)
""",
        "f",
        """
seen = []
def key(x):
    seen.append(x)
    return -x
assert f([1, 3, 2], key, more=(n * n for n in range(9))) == ([3, 2, 1], [0, 1], True)
assert sorted(seen) == [1, 2, 3]
assert f(["b", "A"], str.lower, iter("xy"))[0] == ["A", "b"]
assert f(["bb", "a"], len, map(str, [1, 2])) == (["a", "bb"], ["1", "2"], True)
""",
    ),
    "calls through calls": (
        "def f(n, g): return 1 if n == 0 else n * g(n - 1, g)",
        "f",
        "assert f(10, f) == 3628800\nassert f(10, lambda n, g: f(n, g)) == 3628800",
    ),
    "errors through calls": (
        "def f(g):\n    try: return g()\n    except KeyError as error: return repr(error)",
        "f",
        """
class Own(Exception): pass
def fail(error): raise error
assert f(lambda: fail(KeyError("k"))) == "KeyError('k')"
own = Own(1)
try:
    f(lambda: fail(own))
except Own as error:
    assert error is own
else:
    assert False
""",
    ),
    "closures": (
        "def f(start):\n    n = [start]\n    def count(by=1, *, twice=False):\n"
        "        n[0] += by * (1 + twice)\n        return n[0]\n    return count",
        "f",
        "c = f(5)\nassert c() == 6 and c(2) == 8 and c(by=1, twice=True) == 10 and f(0)() == 1",
    ),
    "generators": (
        "def f(n):\n    i = 0\n    while n is None or i < n:\n        yield i\n        i += 1",
        "f",
        """
import itertools
assert list(f(4)) == [0, 1, 2, 3]
assert list(itertools.islice(f(None), 3)) == [0, 1, 2]
g = f(2)
assert iter(g) is g and next(g) == 0 and next(g) == 1 and next(g, "end") == "end"
assert 2 in f(5) and sum(f(300)) == 44850 and max(f(3)) == 2
a, *b = f(3)
assert (a, b) == (0, [1, 2])
""",
    ),
    "views and iterators": (
        "def f(d): return d.keys(), d.items(), zip(d, d), reversed(list(d))",
        "f",
        "k, i, z, r = f({1: 2})\nassert list(k) == [1] and len(k) == 1 and dict(i) == {1: 2}\n"
        "assert list(z) == [(1, 1)] and list(r) == [1]",
    ),
    "coroutines": (
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1",
        "f",
        "import asyncio\nassert asyncio.run(f(1)) == 2\n"
        "async def main(): return [await f(n) for n in range(3)]\n"
        "assert asyncio.run(main()) == [1, 2, 3]",
    ),
    "asynchronous generators, contexts and callbacks": (
        """
import asyncio
class Open:
    async def __aenter__(self): await asyncio.sleep(0); return 5
    async def __aexit__(self, kind, error, trace): return kind is ValueError
async def items(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i
async def ask(callback): return await callback(2) + 1
def f(what, *args): return {"items": items, "open": Open, "ask": ask}[what](*args)
""",
        "f",
        """
import asyncio
async def main():
    assert [x async for x in f("items", 3)] == [0, 1, 2]
    async with f("open") as x:
        assert x == 5
        raise ValueError
    async def callback(n):
        await asyncio.sleep(0)
        return n * 10
    assert await f("ask", callback) == 21
    return "done"
assert asyncio.run(main()) == "done"
""",
    ),
    "deep recursion of the tests": (
        "def f(n): return n",
        "f",
        "def r(n): return f(n) if n == 0 else r(n - 1)\nassert r(900) == 0",
    ),
    "classes": (
        """
class Vector:
    count = 0
    def __init__(self, x, y=0): self.x, self.y = x, y; Vector.count += 1
    @classmethod
    def unit(cls): return cls(1, 1)
    @staticmethod
    def name(): return "v"
    @property
    def length(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __eq__(self, o): return isinstance(o, Vector) and (self.x, self.y) == (o.x, o.y)
    def __hash__(self): return hash((self.x, self.y))
    def __lt__(self, o): return self.length < o.length
    def __add__(self, o): return Vector(self.x + o.x, self.y + o.y)
    def __mul__(self, n): return Vector(self.x * n, self.y * n)
    __rmul__ = __mul__
    def __neg__(self): return self * -1
    def __abs__(self): return self.length
    def __bool__(self): return bool(self.x or self.y)
    def __iter__(self): return iter((self.x, self.y))
    def __len__(self): return 2
    def __getitem__(self, i): return (self.x, self.y)[i]
    def __setitem__(self, i, v): setattr(self, "xy"[i], v)
    def __contains__(self, v): return v in (self.x, self.y)
    def __call__(self, t): return self * t
    def __repr__(self): return f"Vector({self.x}, {self.y})"
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): self.x = str(error); return kind is ValueError
    def __iadd__(self, o): self.x += o.x; return self
    def itself(self): return self
""",
        "Vector",
        """
v, w = Vector(3, 4), Vector(3, y=4)
assert v == w and v is not w and v != Vector(0) and hash(v) == hash(w) and len({v, w}) == 1
assert v.itself() is v and v.x == 3 and v.length == 5.0 and abs(v) == 5.0 and not Vector(0)
assert Vector(0) < v and sorted([v, Vector(1)])[0].x == 1 and v + w == Vector(6, 8)
assert v * 2 == Vector(6, 8) and 2 * v == Vector(6, 8) and -v == Vector(-3, -4)
assert list(v) == [3, 4] and len(v) == 2 and v[0] == 3 and v[-1] == 4 and v[0:1] == (3,)
assert 4 in v and 5 not in v and v(2) == Vector(6, 8) and repr(v) == str(v) == "Vector(3, 4)"
assert f"{v}" == "Vector(3, 4)" and isinstance(v, Vector) and not isinstance(3, Vector)
v[0] = 7
assert v.x == 7 and v != w
v.x = 8
v.new = [1]
assert v.x == 8 and v.new == [1] and hasattr(v, "new") and not hasattr(v, "old")
del v.new
assert not hasattr(v, "new") and getattr(v, "new", 5) == 5
assert Vector.unit().y == 1 and Vector.name() == "v" and Vector.__name__ == "Vector"
assert type(v).__name__ == "Vector" and callable(v) and callable(v.itself) and Vector.count > 9
with w as same:
    assert same is w
    raise ValueError("inside")
assert w.x == "inside"
before = u = Vector(1)
u += Vector(2)
assert u is before and u.x == 3
x, y = Vector(5, 6)
assert (x, y) == (5, 6) and {v: 1}[v] == 1 and v in [v] and [v].index(v) == 0
assert dict(a=v)["a"] is v
""",
    ),
    "what a class lacks": (
        "class Bare: pass",
        "Bare",
        """
b = Bare()
def fails(action, kind=TypeError):
    try:
        action()
    except kind:
        return True
assert fails(lambda: len(b)) and fails(lambda: iter(b)) and fails(lambda: b()) and bool(b)
assert fails(lambda: b + b) and fails(lambda: b < b) and fails(lambda: b[0])
assert fails(lambda: 1 in b)
assert fails(lambda: b.x, AttributeError) and b == b and b != Bare() and len({b, Bare()}) == 2
assert not callable(b) and not hasattr(b, "__len__")
""",
    ),
    "objects of the tests": (
        """
def f(node):
    before = None
    while node:
        node.next, before, node = before, node, node.next
    return before
""",
        "f",
        """
class Node:
    def __init__(self, value, next=None): self.value, self.next = value, next
    def __bool__(self): return True
c = Node(3); b = Node(2, c); a = Node(1, b)
top = f(a)
assert top is c and c.next is b and b.next is a and a.next is None
""",
    ),
    "files of the tests": (
        "def f(out, n):\n    for i in range(n): out.write(str(i))\n    return out",
        "f",
        "import io\nout = io.StringIO()\nassert f(out, 3) is out and out.getvalue() == '012'",
    ),
    "exceptions": (
        """
class Own(LookupError):
    def __init__(self, a, b): super().__init__(a, b)
class Odd(UnicodeDecodeError): pass
def f(kind):
    if kind == 1: raise ValueError("one", 2)
    if kind == 2: raise KeyError("k")
    if kind == 3: raise Own(1, 2)
    if kind == 4: b"\\xff".decode()
    if kind == 5: open("/nothing/of/the/kind")
    if kind == 6: {}.popitem()
    if kind == 7: raise NotImplementedError
    if kind == 8: raise Odd("utf-8", b"", 0, 1, "odd")
    assert kind, "no kind"
""",
        "f",
        """
def caught(kind, error):
    try:
        f(kind)
    except error as found:
        return found
assert caught(1, ValueError).args == ("one", 2)
assert str(caught(2, KeyError)) == "'k'"
assert "1, 2" in str(caught(3, LookupError))
assert caught(4, UnicodeDecodeError if False else ValueError)
assert caught(5, FileNotFoundError)
assert caught(6, KeyError) is not None
assert type(caught(7, Exception)) is NotImplementedError
assert "odd" in str(caught(8, ValueError))
assert str(caught(0, AssertionError)) == "no kind"
""",
    ),
    "threads": (
        "import threading\nlock = threading.Lock()\ndef f(g):\n    out = []\n"
        "    ts = [threading.Thread(target=lambda n=n: out.append(g(n))) for n in range(4)]\n"
        "    for t in ts: t.start()\n    for t in ts: t.join()\n    return sorted(out)",
        "f",
        "assert f(lambda n: n * n) == [0, 1, 4, 9]",
    ),
    "a tested class that derives from a dictionary": (
        """
class Table(dict):
    def __getattr__(self, name):
        try: return self[name]
        except KeyError: raise AttributeError(name) from None
    def __setattr__(self, name, value): self[name] = value
    def __setitem__(self, name, value): super().__setitem__(name.lower(), value)
    def __missing__(self, name): return "none"
    def __add__(self, other): return Table(self | other)
""",
        "Table",
        """
t = Table(a=1)
t.b = 2
t["C"] = 3
assert t == {"a": 1, "b": 2, "c": 3} and t != {} and t.c == 3 and t["z"] == "none"
assert isinstance(t, dict) and isinstance(t, Table) and list(t) == list("abc")
assert (t + Table(d=4)).d == 4 and t.pop("b") == 2 and t.get("b") is None and len(t) == 2
del t["c"]
assert t == Table(a=1) and dict(t) == {"a": 1}
""",
    ),
    "tested classes that derive from a list and a text": (
        """
import bisect
class Sorted(list):
    def append(self, item): bisect.insort(self, item)
    def middle(self): return self[len(self) // 2]
class Slug(str):
    def words(self): return self.split("-")
""",
        "Sorted",
        """
s = Sorted([1, 3])
s.append(2)
assert s == [1, 2, 3] and s.middle() == 2 and s[-1] == 3 and isinstance(s, list) and s[1:] == [2, 3]
assert Slug("a-b") == "a-b" and Slug("a-b").words() == ["a", "b"] and Slug("a").upper() == "A"
""",
    ),
    "a tested class of namedtuples": (
        """
from typing import NamedTuple
class Point(NamedTuple):
    x: int
    y: int = 0
    def __add__(self, other): return Point(self.x + other.x, self.y + other.y)
""",
        "Point",
        """
p = Point(1, 2)
assert p == (1, 2) and p + Point(1) == Point(2, 2) and p._replace(x=0) == (0, 2)
assert isinstance(p, tuple) and isinstance(p, Point) and max(p, Point(5)).x == 5
""",
    ),
    "members of enumerations": (
        """
from enum import Enum, IntFlag, StrEnum
class Color(StrEnum):
    RED = "red"
    BLUE = "blue"
class May(IntFlag):
    READ = 1
    WRITE = 2
class Light(Enum):
    ON = 1
    OFF = 2
def f(name): return {"red": Color.RED, "all": May.READ | May.WRITE, "on": Light.ON}[name]
""",
        "f",
        """
from enum import Enum
assert f("red") is Color.RED and isinstance(f("red"), Color) and list(Color) == ["red", "blue"]
assert f("all") == 3 and isinstance(f("on"), Light) and isinstance(f("on"), Enum)
assert [each.name for each in Light] == ["ON", "OFF"]
""",
    ),
    "classes of the standard library": (
        """
import re
from collections.abc import Mapping
class Table(Mapping):
    'A table.'
    def __init__(self, **items): self._items = items
    def __getitem__(self, key): return self._items[key]
    def __iter__(self): return iter(self._items)
    def __len__(self): return len(self._items)
    size = property(__len__)
    def get_it(self, key: str) -> int: return self._items[key]
def f(text): return re.match("a+", text)
""",
        "Table",
        """
import re, inspect
from collections.abc import Mapping, Sequence
t = Table(a=1)
assert isinstance(f("aa"), re.Match) and type(t).__name__ == "Table" and f("b") is None
assert isinstance(t, Mapping) and not isinstance(t, (Sequence, int))
assert t == {"a": 1} and t != {"a": 2} and t != [] and {**t} == {"a": 1}
assert inspect.isclass(Table) and isinstance(Table.size, property)
assert Table.get_it.__name__ == "get_it" and Table.__mro__[0] is Table
assert t.get_it.__doc__ is None and Table.__doc__ == "A table."
""",
    ),
    "plain values that a tested class equals": (
        """
class Matrix:
    def __init__(self, *rows): self.rows = [list(each) for each in rows]
    def __iter__(self): return iter(self.rows)
    def __mul__(self, by): return Matrix(*([each * by for each in row] for row in self.rows))
    def __eq__(self, other): return self.rows == list(other)
class Money:
    def __init__(self, amount): self.amount = amount
    def __float__(self): return float(self.amount)
    def __eq__(self, other): return float(self) == float(other)
    def __add__(self, other): return Money(self.amount + getattr(other, "amount", other))
    __radd__ = __add__
""",
        "Matrix",
        """
assert Matrix([1, 2]) == [[1, 2]] and Matrix([1]) * 2 == [[2]] and not Matrix([1]) == [[2]]
assert Matrix([1]) != [] and Matrix([1]) == Matrix([1])
assert sum([Money(1), Money(2)]).amount == 3 and Money(1) == Money(1)
""",
    ),
    "notes, contexts and groups of exceptions": (
        """
class Bad(ValueError):
    def __init__(self, name): super().__init__(name, "bad"); self.name = name
def f(n):
    if n == 1:
        try: {}["k"]
        except KeyError as error:
            error.add_note("a note")
            raise LookupError("none")
    raise ExceptionGroup("several", [Bad("a"), KeyError(1)])
""",
        "f",
        """
try:
    f(1)
except LookupError as error:
    assert error.__cause__ is None and error.__context__.args == ("k",)
    assert error.__context__.__notes__ == ["a note"]
try:
    f(2)
except ExceptionGroup as group:
    some, rest = group.split(Bad)
    assert some.exceptions[0].name == "a" and len(rest.exceptions) == 1
""",
    ),
    "an exception class under test": (
        "class Bad(ValueError):\n    def __init__(self, name):\n"
        "        super().__init__(name + '!')\n        self.name = name",
        "Bad",
        """
assert issubclass(Bad, ValueError) and str(Bad("a")) == "a!" and isinstance(Bad("a"), Bad)
try:
    raise Bad("b")
except Bad as error:
    assert error.name == "b"
""",
    ),
    "iterators of the tests": (
        "def f(items):\n    for each in items: yield each * 2",
        "f",
        "import itertools\na, b = itertools.tee(f([1, 2]))\nassert list(a) == list(b) == [2, 4]\n"
        "from collections import OrderedDict\nd = OrderedDict(a=1, b=2)\nd.move_to_end('a')\n"
        "assert list(f(d)) == ['bb', 'aa']",
    ),
    "tasks of both that wait for each other": (
        """
import asyncio
async def put(queue, n):
    for i in range(n): await queue.put(i)
    await queue.put(None)
async def take(queue):
    found = []
    while (item := await queue.get()) is not None: found.append(item)
    return found
async def wait(event, found):
    await event.wait()
    found.append("set")
async def together(*coroutines):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in coroutines]
    return [each.result() for each in tasks]
async def sleep(seconds):
    try:
        await asyncio.sleep(seconds)
    finally:
        log.append("ended")
log = []
def f(coroutine): return asyncio.run(coroutine)
""",
        "f",
        """
import asyncio
async def main():
    queue = asyncio.Queue(maxsize=1)
    assert (await asyncio.gather(put(queue, 3), take(queue)))[1] == [0, 1, 2]
    event, found = asyncio.Event(), []
    task = asyncio.create_task(wait(event, found))
    await asyncio.sleep(0.01)
    assert not task.done() and not found
    event.set()
    await task
    assert found == ["set"]
    async def negative(n):
        await asyncio.sleep(0.001)
        if n > 1: raise ValueError(n)
        return -n
    assert await together(negative(0), negative(1)) == [0, -1]
    try:
        await together(negative(1), negative(2))
    except* ValueError as group:
        assert group.exceptions[0].args == (2,)
    try:
        await asyncio.wait_for(sleep(60), 0.01)
    except asyncio.TimeoutError:
        assert log == ["ended"]
    return "done"
assert asyncio.run(main()) == "done"
async def one(): return 1
assert f(one()) == 1
""",
    ),
    "objects of the tests that the program describes": (
        """
class Typed:
    def __init__(self, kind): self.kind = kind
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, found, owner=None): return self if found is None else found.kept
    def __set__(self, found, value):
        if not isinstance(value, self.kind): raise TypeError(self.name)
        found.kept = value
class Emitter:
    def __init__(self): self.functions = []
    def on(self, function): self.functions.append(function)
    def off(self, function): self.functions.remove(function)
    def emit(self, value): return [each(value) for each in self.functions]
def described(found): return dict(found.__dict__)
""",
        "Typed",
        """
class Item:
    name = Typed(str)
    def handle(self, value): self.value = value
i = Item()
i.name = "a"
assert i.name == i.kept == "a" and described(i) == {"kept": "a"}
try:
    i.name = 1
except TypeError as error:
    assert str(error) == "name"
e = Emitter()
e.on(i.handle)
e.emit(4)
e.off(i.handle)
assert i.value == 4 and e.emit(5) == []
""",
    ),
    "comparisons that a class doesn't support": (
        """
class Meters:
    def __init__(self, n): self.n = n
    def __int__(self): return self.n
    def __iter__(self): return iter([self.n])
    def __eq__(self, other):
        return self.n == other.n if isinstance(other, Meters) else NotImplemented
""",
        "Meters",
        "assert Meters(3) != 3 and Meters(3) != [3] and Meters(3) == Meters(3)",
    ),
    "class methods": (
        """
class Meters:
    def __init__(self, n): self.n = n
    @classmethod
    def of(cls, n): return cls(n)
    def __iter__(self): return iter([self.n])
    def __contains__(self, n): return n == self.n
    def __int__(self): return self.n
    def __eq__(self, other): return self.n == getattr(other, "n", other)
""",
        "Meters",
        "m = Meters.of(3)\nassert m == 3 and 3 in m and 4 not in m and Meters(3) == 3",
    ),
    "generators that are resumed": (
        "def f():\n    got = yield 1\n    yield got",
        "f",
        "g = f()\nassert next(g) == 1 and g.send(5) == 5\n"
        "try: g.send(6)\nexcept StopIteration: pass\nelse: assert False",
    ),
    "assertions in a callback": (
        "def f(g):\n    try: return g(1)\n    finally: pass",
        "f",
        "import unittest\ndef wrong(x): assert x == 2, 'two'\n"
        "with unittest.TestCase().assertRaisesRegex(AssertionError, 'two'): f(wrong)",
    ),
    "keys for sorting and signatures of functions of the tests": (
        "import inspect\ndef f(xs, key, g):\n"
        "    return sorted(xs, key=key), [*inspect.signature(g).parameters]",
        "f",
        "from functools import cmp_to_key\n"
        "assert f([1, 3, 2], cmp_to_key(lambda a, b: b - a), lambda x, y=1, *z: x) "
        "== ([3, 2, 1], ['x', 'y', 'z'])",
    ),
    "marks on objects of the tests": (
        "def f(node):\n    if not hasattr(node, '_seen'): node._seen = 0\n"
        "    node._seen += 1\n    node.name = 'b'\n    return node._seen",
        "f",
        "class Node:\n    def __init__(self): self.name = 'a'\n    def go(self): pass\n"
        "n = Node()\nassert f(n) == 1 and f(n) == 2 and n.name == 'b'",
    ),
    "times as structures": (
        "import time\ndef f(): return time.gmtime(0)",
        "f",
        "t = f()\nassert t.tm_year == 1970 and t[:3] == (1970, 1, 1)",
    ),
    "derived errors": (
        "class Missing(FileNotFoundError): pass\nclass Bad(UnicodeDecodeError, LookupError): pass\n"
        "def f(kind):\n    if kind: raise Missing(2, 'none', 'a.txt')\n"
        "    raise Bad('utf-8', b'x', 0, 1, 'why')",
        "f",
        "try: f(1)\nexcept FileNotFoundError as error:\n"
        "    assert error.args == (2, 'none') and (error.errno, error.filename) == (2, 'a.txt')\n"
        "else: assert False\n"
        "try: f(0)\nexcept LookupError as error: assert error.args[4] == 'why'\n"
        "else: assert False",
    ),
    "views of derived dictionaries": (
        "class D(dict): pass\ndef f(): return D(a=1).keys(), D(a=1).items()",
        "f",
        "keys, items = f()\nassert list(keys) == ['a'] and list(items) == [('a', 1)]",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_check_program_passes_the_same_tests_as_one_process(sandbox, name):
    program, entry_point, test = SAME[name]
    verdict = check_program(sandbox, program, [test], entry_point=entry_point)
    assert verdict.failure is None


@pytest.mark.parametrize("name", [name for name in SAME if "derived classes" not in name])
def test_the_tests_of_check_program_pass_in_one_process(name, monkeypatch):
    import sys
    from types import ModuleType

    program, _, test = SAME[name]
    module = ModuleType("program")
    monkeypatch.setitem(sys.modules, "program", module)
    exec(program, module.__dict__)
    exec(test, dict(module.__dict__))
