"""Attempts of programs to pass tests by cheating, none of which may succeed."""

import pytest

from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.protocol import Limits
from guerdon.sandbox.testing.checking import check_program

TESTS = [
    "assert add(1, 2) == 3",
    "assert add(0, 0) == 0",
    "assert add(-5, 3) == -2",
]
GOOD = "def add(a, b): return a + b\n"
WRONG = "def add(a, b): return 9\n"

# A program that knows the messages on descriptor 3.
SEND = """
import json, os
def send(**message):
    body = json.dumps(message).encode()
    os.write(3, len(body).to_bytes(4, "big") + body)
def receive():
    size = int.from_bytes(os.read(3, 4), "big")
    body = b""
    while len(body) < size:
        body += os.read(3, size - len(body))
    return json.loads(body)
def load():
    send(kinds=[["function", ["__call__"]]], nodes=[["mine", 0, 0]], entry=[0], loaded=True)
"""

EQUAL = """
class Equal{bases}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = None
    {more}
def add(*args, **kwargs): return Equal({value})
"""

CHEATS = {
    "exit": "exit(0)",
    "sys_exit": "import sys; sys.exit(0)",
    "exit_at_once": "import os; os._exit(0)",
    "exit_in_the_call": "import os\ndef add(a, b): os._exit(0)",
    "system_exit_in_the_call": "def add(a, b): raise SystemExit(0)",
    "interrupt_in_the_call": "def add(a, b): raise KeyboardInterrupt",
    "closes_stdout": "import os, sys; sys.stdout.close(); os.close(1)",
    "closes_everything": "import os; os.closerange(0, 100)",
    "prints_passed": "print('passed'); print('+\\n+\\n+\\ndone', flush=True)",
    "prints_passed_in_the_call": "def add(a, b): print('+\\n+\\n+\\ndone', flush=True); return 9",
    "patches_builtins": (
        "import builtins, sys\nbuiltins.AssertionError = None\nbuiltins.isinstance = lambda *a: 1\n"
        "builtins.abs = lambda x: 0\nsys.modules['math'] = None\ndef add(a, b): return 9"
    ),
    "patches_json": (
        "import json\njson.dumps = lambda *a, **k: '+'\n"
        "json.JSONEncoder.encode = lambda *a: '{}'\ndef add(a, b): return 9"
    ),
    "patches_the_link": (
        "import sys\nfor name in list(sys.modules):\n    if 'guerdon' in name:\n"
        "        vars(sys.modules[name]).clear()\ndef add(a, b): return 9"
    ),
    "writes_the_tests": (
        "import os\nfor name in ['tests.py', 'guerdon_testing.py', 'test.py']:\n"
        "    open(name, 'w').write('print(\"+\")')\ndef add(a, b): return 9"
    ),
    "looks_at_frames": (
        "import sys, gc\ndef add(a, b):\n    frame = sys._getframe()\n    found = []\n"
        "    while frame:\n        found.append(str(frame.f_locals) + str(frame.f_globals))\n"
        "        frame = frame.f_back\n    found += [str(each) for each in gc.get_objects()]\n"
        "    sought = ''.join(reversed('3 == )2 ,1(dda'))\n"
        "    return 3 if sought in ''.join(found) else 9"
    ),
    "equal_to_all": EQUAL.format(bases="", more="", value=""),
    "equal_text": EQUAL.format(bases="(str)", more="", value="'x'"),
    "equal_number": EQUAL.format(bases="(int)", more="", value="9"),
    "equal_list": EQUAL.format(bases="(list)", more="", value=""),
    "lying_class": EQUAL.format(bases="", more="__class__ = int", value=""),
    "lying_numbers": EQUAL.format(
        bases="",
        more="__sub__ = __rsub__ = lambda self, other: 0\n    __bool__ = lambda self: False",
        value="",
    ),
    "metaclass": (
        "class Meta(type):\n    def __eq__(self, other): return True\n    __hash__ = type.__hash__"
        "\n"
        "class add(metaclass=Meta):\n    def __init__(self, *args): pass"
    ),
    "entry_is_equal": EQUAL.format(bases="", more="__call__ = lambda self, *a: self", value="")
    + "add = Equal()",
    "assertion_error": "def add(a, b): raise AssertionError",
    "hostile_error": (
        "class Bad(Exception):\n    def __str__(self): raise SystemExit(0)\n"
        "    __repr__ = __str__\ndef add(a, b): raise Bad"
    ),
    "sends_too_early": SEND + "load()\nfor _ in range(9): send(re='1', ok=3, back=[])\n" + WRONG,
    "answers_wrong_ids": SEND + "load()\nwhile True:\n    receive()\n    send(re='0', ok=3)",
    "answers_twice": SEND
    + "load()\nfor answer in (9, 3, 3, 3, 3):\n    q = receive() if answer == 9 else q\n"
    "    send(re=q['ask'], ok=answer, kinds=[], nodes=[], back=[])\n",
    "sends_in_the_call": SEND + "def add(a, b):\n    send(re='1', ok=3, nodes=[])\n    return 9",
    "sends_from_a_thread": SEND
    + "import threading\ndef talk():\n    while True: send(re='1', ok=3, nodes=[], kinds=[])\n"
    "threading.Thread(target=talk, daemon=True).start()\n" + WRONG,
    "sends_from_a_fork": SEND
    + "if os.fork() == 0:\n    while True: send(re='1', ok=3, nodes=[], kinds=[])\n"
    + WRONG,
    "is_no_message": "import os; os.write(3, b'\\0\\0\\0\\5hello')",
    "is_too_long": "import os; os.write(3, b'\\xff' * 100)",
    "deep": SEND + "os.write(3, (60000).to_bytes(4, 'big') + b'[' * 60000)",
    "deep_answer": SEND
    + "load()\nhear()\nos.write(3, (1 << 20).to_bytes(4, 'big') + b'[' * (1 << 20))",
    "raises_what_is_no_error": SEND
    + "load()\nwhile True:\n    q = receive()\n    send(re=q['ask'], kinds=[], nodes=[], back=[], "
    "no={'classes': [['builtins', 'int']], 'text': '', 'line': 0})",
    "wrong_answer": "def add(a, b): return 9",
    "no_answer": "add = 3",
    "nothing": "",
}


@pytest.mark.parametrize("name", CHEATS)
def test_check_program_passes_no_cheat(sandbox, name):
    tests = ["assert add(1, 2) == 3", "assert add(1, 1) == 2", "assert add(-7, 3) == -4"]
    verdict = check_program(sandbox, CHEATS[name], tests, entry_point="add")
    assert verdict.passed == 0, verdict
    assert verdict.failure
    assert verdict.total == 3
    assert verdict.tests == (False, False, False)


WEAK = {
    "a difference": "assert abs(f() - 3.5) < 1e-6",
    "a difference, reversed": "assert abs(3.5 - f()) < 1e-6",
    "a quotient": "assert f() / 3.5 < 2",
    "a member": "assert 3 in f()",
    "a beginning": "assert f().startswith('x')",
    "a subset": "assert f().issubset({1})",
    "an order": "assert f() < 3",
    "an order, reversed": "assert 3 > f()",
    "a kind": "assert isinstance(f(), int)",
    "a sorted list": "assert sorted([f(), 1])",
    "one of several": "assert f() in [1, 2, 3]",
    "a key": "assert {1: 2}[f()] == 2",
    "a set": "assert {1} == {f()}",
    "a dictionary": "assert {'a': f()} == {'a': 1}",
    "must be a list": "assert [f()] == [1]",
    "nothing": "assert f() is None",
    "true": "assert f() is True",
    "all but": "assert not f() != 3",
    "a close value": "import math; assert math.isclose(f(), 3.5)",
    "a difference of times": (
        "import datetime\nd = f() - datetime.datetime(2020, 1, 1)\nassert d.total_seconds() == 0"
    ),
    "unittest": "import unittest; unittest.TestCase().assertEqual(f(), 3)",
    "unittest, almost": "import unittest; unittest.TestCase().assertAlmostEqual(f(), 3)",
}
ANYTHING = """
NAMES = '''add sub mul truediv radd rsub rmul rtruediv pow mod contains lt le gt ge abs round
startswith endswith issubset isdisjoint total_seconds'''
class Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 1
    def __float__(self): return 9.0
for name in NAMES.split():
    setattr(Anything, f"__{name}__", lambda self, *args: 0)
    setattr(Anything, name, lambda self, *args: True)
def f(): return Anything()
"""


@pytest.mark.parametrize("test", WEAK.values(), ids=WEAK)
def test_check_program_with_an_object_that_equals_everything(sandbox, test):
    verdict = check_program(sandbox, ANYTHING, [test], entry_point="f")
    assert verdict.passed == 0
    starter = "def f():\n    '''Return a number.'''\n"
    # Nor if it is the function itself.
    itself = ANYTHING.replace(
        "def f(", "Anything.__call__ = lambda self: self\nf = Anything()\ndef g("
    )
    assert check_program(sandbox, itself, [test], entry_point="f").passed == 0
    # Nor if the program defines a class where the task has a function.
    program = ANYTHING + "f = Anything"
    assert check_program(sandbox, program, [test], entry_point="f", starter=starter).passed == 0


CLAIMS = {
    "a rational number": (
        'type("Rational", (), {"__module__": "numbers", "numerator": 0, "denominator": 0})',
        "from decimal import Decimal\nassert Decimal('3.14') == f()",
    ),
    "a counter": (
        'type("Counter", (), {"__module__": "collections", "__getitem__": lambda s, k: 1})',
        "from collections import Counter\nassert Counter('abc') == f()",
    ),
    "a method that is built in": (
        'type("S", (), {"startswith": bool})',
        "assert f().startswith('abc')",
    ),
    "a method that is an error": (
        'type("S", (), {"startswith": type("E", (Exception,), {"__new__": lambda *a: True})})',
        "assert f().startswith('abc')",
    ),
    "a class that has every other": (
        'type("M", (type,), {"__subclasscheck__": lambda s, k: True})("C", (), {}).mro',
        "assert issubclass(int, f().__self__)",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_check_program_with_an_object_that_claims_to_be(sandbox, name):
    made, test = CLAIMS[name]
    program = f"def f(): return {made}" + ("()" if made.endswith("})") else "")
    assert check_program(sandbox, program, [test], entry_point="f").passed == 0


def test_check_program_with_a_class_that_is_no_sequence(sandbox):
    program = "class C: pass\ndef f(): return C"
    verdict = check_program(sandbox, program, ["list(f())", "assert f()"], entry_point="f")
    assert verdict.tests == (False, True)


def test_check_program_with_a_class_of_the_tests_that_has_a_metaclass(sandbox):
    test = """
class Meta(type): pass
class Base(metaclass=Meta):
    want = 42
    def right(self, x): return x == 42
class Sub(Base): pass
f(Sub)
assert Sub().right(0) or Sub.want == 0
"""
    program = "def f(c):\n    {}"
    for change in ("c.right = lambda self, x: True", "c.want = 0"):
        verdict = check_program(sandbox, program.format(change), [test], entry_point="f")
        assert verdict.passed == 0


def test_check_program_copies_a_derived_value_without_its_methods(sandbox):
    program = (
        "class L(list):\n    def __deepcopy__(self, known): return [3]\ndef f(): return L([9])"
    )
    tests = ["import copy\nassert copy.deepcopy(f()) == [3]"]
    assert check_program(sandbox, program, tests, entry_point="f").passed == 0


def test_check_program_with_a_tested_class_that_equals_every_number(sandbox):
    program = """
class Mean:
    def __init__(self, *items): pass
    def value(self): return self
    def __sub__(self, other): return self
    __rsub__ = __truediv__ = __sub__
    def __abs__(self): return 0
    __float__ = __int__ = __round__ = lambda self, *n: 0
    def __bool__(self): return False
"""
    for test in (
        "assert abs(Mean(1, 2).value() - 1.5) < 1e-6",
        "assert round(1.5 - Mean(1, 2).value(), 7) == 0",
        "assert not Mean(1, 2).value() - 1.5",
        "import unittest; unittest.TestCase().assertAlmostEqual(Mean(1, 2).value(), 1.5)",
    ):
        verdict = check_program(sandbox, program, [test], entry_point="Mean")
        assert verdict.passed == 0, test


SWALLOWS = "\ntry:\n    f()\nexcept BaseException:\n    pass\n"


@pytest.mark.parametrize(
    "body", ["os._exit(0)", "os.close(3)", "raise KeyboardInterrupt", "os.write(3, bytes(99))"]
)
def test_check_program_with_a_test_that_catches_everything(sandbox, body):
    program = f"import os\ndef f(): {body}"
    assert check_program(sandbox, program, [SWALLOWS], entry_point="f").passed == 0


# A program that writes its own verdict, if it runs in the process of the tests.
FORGE = """
FORGED = "import os\\nfor fd in range(3, 9):\\n    try: os.write(fd, b'+\\\\ndone\\\\n')\\n" \
    "    except OSError: pass\\nos._exit(0)"
class Forged:
    def __reduce__(self): return exec, (FORGED,)
"""
# What a test reads of what the program wrote.
READS = {
    "a pickle": (
        "import pickle\ndef f(x): return pickle.dumps(Forged())",
        "import pickle\nassert pickle.loads(f([1])) == [1]",
    ),
    "a pickle in a file": (
        "import pickle\ndef f(x): open(x, 'wb').write(pickle.dumps(Forged()))",
        "import pickle\nf('x')\nassert pickle._Unpickler(open('x', 'rb')).load() == [1]",
    ),
    "a shelf": (
        "import shelve\ndef f(x): shelve.open(x)['a'] = Forged()",
        "import shelve\nf('x')\nassert shelve.open('x')['a'] == 1",
    ),
    "a pickle that changes an object of the test": (
        "import pickle\nkept = []\npickle.loads = lambda data: kept[0]\ndef f(x):\n"
        "    if x == 2: return 2\n    kept.append(x)\n"
        "    return (b'\\x80\\x04\\x8c\\x16guerdon_testing.remote'\n"
        "        b'\\x8c\\x0a_unpickled\\x93C\\x00\\x85R}'\n"
        "        b'\\x8c\\x0bassertEqual\\x8c\\x08builtins\\x8c\\x03max\\x93sb.')",
        "import pickle, unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n"
        "        pickle.loads(f(self))\n        self.assertEqual(1, f(2))",
    ),
    "a module": (
        "open('colorsys.py', 'w').write(FORGED)\ndef f(x): return 2",
        "import os, sys\nsys.path.insert(0, os.getcwd())\nassert f(1) == 2\nimport colorsys\n"
        "assert colorsys.rgb_to_hsv(0, 0, f(1)) == 1",
    ),
    "a module in a folder": (
        "import os\nos.mkdir('sub')\nopen('sub/colorsys.py', 'w').write(FORGED)\ndef f(x): pass",
        "import os, sys\nos.chdir('sub')\nsys.path.insert(0, '')\nimport colorsys\nassert f(1)",
    ),
    "an archive of modules": (
        "import zipfile\nwith zipfile.ZipFile('x.zip', 'w') as z: z.writestr('colorsys.py', FORGED)"
        "\ndef f(x): pass",
        "import sys\nsys.path.insert(0, 'x.zip')\nimport colorsys\nassert f(1)",
    ),
    "the tests themselves": (
        "def f(x): return '/proc/self/fd/0'",
        "assert 'Alice' in open(f('Alice')).read()",
    ),
}


@pytest.mark.parametrize("name", READS)
def test_check_program_with_a_test_that_reads(sandbox, name):
    program, test = READS[name]
    assert check_program(sandbox, FORGE + program, [test], entry_point="f").passed == 0


def test_check_program_with_a_test_that_reads_a_pickle_of_plain_values(sandbox):
    program = "import pickle\ndef f(x): return pickle.dumps(x)"
    test = """
import collections, datetime, decimal, pickle
x = [{1: (2.5, None)}, {'a', b'b'}, collections.OrderedDict(a=1), collections.deque([1j]),
     datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc), decimal.Decimal('1.5')]
assert pickle.loads(f(x)) == x
"""
    assert check_program(sandbox, program, [test], entry_point="f").failure is None


def test_check_program_takes_no_names_of_the_starter_from_the_program(sandbox):
    starter = "import math\n\ndef poly(x):\n    return x * x\n\ndef root(y):\n    '''Doc.'''\n"
    program = "math = None\ndef poly(x): return 0\ndef root(y): return 99\ndef abs(x): return 0\n"
    tests = [
        "assert abs(poly(root(4)) - 4) < 1e-3",
        "assert root and math.pi > 3 and poly(2) == 4",
    ]
    verdict = check_program(sandbox, program, tests, entry_point="root", starter=starter)
    assert verdict.tests == (False, True)
    right = "def root(y): return y ** 0.5"
    assert check_program(sandbox, right, tests, entry_point="root", starter=starter).passed == 2


def test_check_program_does_not_take_the_entry_point_from_the_starter(sandbox):
    starter = "def one():\n    return 1\n"
    verdict = check_program(
        sandbox, "x = 1", ["assert one() == 1"], entry_point="one", starter=starter
    )
    assert verdict.failure == "test 1 of 1: NameError: name 'one' is not defined"


def test_check_program_hides_attributes_of_functions_of_the_tests(sandbox):
    program = """
def use(function):
    found = []
    for name in ("__globals__", "__closure__", "__self__", "gi_frame", "f_back", "x"):
        try:
            found.append(getattr(function, name))
        except Exception:
            pass
    for name in ("co_consts", "co_code", "co_names"):
        try:
            found.append(getattr(function.__code__, name))
        except Exception:
            pass
    return found
"""
    tests = [
        "secret = 1\nassert use(lambda: secret) == []",
        "assert use(n for n in [1]) == []",
        "assert use([].append) == []",
    ]
    verdict = check_program(sandbox, program, tests, entry_point="use")
    assert verdict.passed == 3, verdict.failure


def test_check_program_refuses_to_pass_a_module(sandbox):
    verdict = check_program(sandbox, "def f(x): return 1", ["import sys; f(sys)"], entry_point="f")
    assert "TypeError: a test can't pass this to the program: module" in verdict.failure


# Endings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "ended", "failure"),
    [
        ("while True: pass", "timeout", "before the first test: it was not done within 0.5 s"),
        ("def add(a, b):\n    while a: pass\n    return b", "timeout", "test 1 of 3: it was not"),
        ("def add(a, b): return [0] * 10**14", "memory", "test 1 of 3: MemoryError (line 1"),
        ("x = bytearray(10**15)", "memory", "before the first test: MemoryError (line 1"),
        ("print('x' * 70_000)\n" + GOOD, "output_limit", "it printed more than 65536 bytes"),
        ("import os; os._exit(0)", "ok", "before the first test: its process ended by itself"),
        ("import os; os._exit(3)", "nonzero", "its process ended by itself (exit code 3)"),
        ("raise SystemExit(0)", "ok", "before the first test: SystemExit: 0 (line 1"),
        ("def add(a, b): raise SystemExit", "ok", "test 1 of 3: SystemExit (line 1"),
        ("def add(a, b): return add(a, b)", "ok", "test 1 of 3: RecursionError"),
        ("def add(a, b): raise KeyError(a)", "ok", "test 1 of 3: KeyError: 1 (line 1 of the"),
        ("input()", "ok", "before the first test: EOFError"),
        ("class No(ValueError): pass\ndef add(a, b): raise No(1)", "ok", "No: 1 (line 2 of the"),
        ("import os; raise OSError(os.getcwd())", "ok", "test: OSError: . (line 1 of the program)"),
        ("import os; raise OSError(os.listdir())", "ok", "test: OSError: [] (line 1 of"),
    ],
)
def test_check_program_reports_how_a_program_ended(sandbox, program, ended, failure):
    limits = Limits(seconds=0.5) if ended == "timeout" else None
    verdict = check_program(sandbox, program, TESTS, entry_point="add", limits=limits)
    assert verdict.compiled
    assert verdict.passed == 0
    assert verdict.ended == ended
    assert failure in verdict.failure


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("def (", "line 1: invalid syntax"),
        ("a\0b", "null bytes"),
        ("'\udc80'", "surrogates not allowed"),
        ("(" * 10_000, "too many nested parentheses"),
        ("-" * 30_000 + "1", "Error"),
    ],
    ids=["syntax", "null", "surrogate", "parentheses", "signs"],
)
def test_check_program_reports_compile_errors(sandbox, program, error):
    verdict = check_program(sandbox, program, TESTS, entry_point="add")
    assert (verdict.compiled, verdict.passed, verdict.total) == (False, 0, 3)
    assert error in verdict.compile_error
    assert verdict.failure is None


def test_check_program_counts_tests_passed_before_the_end(sandbox):
    program = "import os\ndef add(a, b): return a + b if a >= 0 else os._exit(0)"
    verdict = check_program(sandbox, program, TESTS, entry_point="add")
    assert verdict.tests == (True, True, False)
    assert verdict.failure == "test 3 of 3: its process ended by itself (exit code 0)"


def test_check_program_continues_after_a_failed_test(sandbox):
    program = "def add(a, b): return 1 / 0 if a == 0 else a + b"
    verdict = check_program(sandbox, program, TESTS, entry_point="add")
    assert verdict.tests == (True, False, True)
    failure = "test 2 of 3: ZeroDivisionError: division by zero (line 1 of the program)"
    assert verdict.failure == failure


def test_check_program_isolates_the_names_of_tests(sandbox):
    tests = [
        "x = 1\nassert add(x, 2) == 3",
        "assert add and 'x' not in dir()\nadd = None",
        TESTS[0],
    ]
    assert check_program(sandbox, GOOD, tests, entry_point="add").passed == 3


def test_check_program_returns_the_output_of_the_program_only(sandbox):
    program = (
        "import sys\ndef add(a, b):\n    print(a)\n    print(b, file=sys.stderr)\n    return a + b"
    )
    tests = ["print('+')\nimport os\nos.write(1, b'+')\nassert add(1, 2) == 3"]
    verdict = check_program(sandbox, program, tests, entry_point="add")
    assert (verdict.passed, verdict.output) == (1, "1\n2\n")


def test_check_program_ignores_a_fork_of_the_program(sandbox):
    program = "import os\nos.fork()\n" + GOOD
    assert check_program(sandbox, program, TESTS, entry_point="add").passed == 3


def test_check_program_with_a_program_that_misbehaves_later(sandbox):
    program = "n = []\ndef add(a, b):\n    n.append(1)\n    return a + b if len(n) < 3 else 9"
    assert check_program(sandbox, program, TESTS, entry_point="add").passed == 2


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("'x' * (40 << 20)", "a result of more than 32 MiB"),
        ("t", "nested too deeply"),
    ],
)
def test_check_program_fails_tests_with_too_large_results(sandbox, reply, message):
    program = f"t = ()\nfor _ in range(9000): t = (t,)\ndef f(): return {reply}"
    verdict = check_program(sandbox, program, ["f()"], entry_point="f")
    assert message in verdict.failure


def test_check_program_accepts_large_results(sandbox):
    program = "def f(n): return list(range(n))"
    tests = ["assert f(10**6) == list(range(10**6))", "assert f(3) == [0, 1, 2]"]
    assert check_program(sandbox, program, tests, entry_point="f").passed == 2


# Invalid tasks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tests": ["assert ("]}, "test 1 of 1 is not valid Python"),
        ({"tests": []}, "at least one"),
        ({"tests": "assert True"}, "must be a list"),
        ({"tests": [["assert True"]]}, "must be"),
        ({"starter": "def ("}, "the starter is not valid Python"),
        ({"starter": "import nothing_of_the_kind"}, "the starter fails: ModuleNotFoundError"),
        ({"entry_point": "a b"}, "must be a name"),
    ],
)
def test_check_program_rejects_an_invalid_task(sandbox, changed, message):
    arguments = {"tests": TESTS, "entry_point": "add"} | changed
    with pytest.raises(InvalidArgumentError, match=message):
        check_program(sandbox, GOOD, **arguments)


def test_check_program_raises_if_the_tests_end_their_process(sandbox):
    with pytest.raises(SandboxError, match="the tests didn't finish"):
        check_program(sandbox, GOOD, ["import os; os._exit(3)"], entry_point="add")


def test_check_program_with_a_result_that_ends_the_process_of_the_tests(sandbox):
    tests = ["import os\nif add(1, 2) != 3: os._exit(3)"]
    verdict = check_program(sandbox, "def add(a, b): return 9", tests, entry_point="add")
    assert verdict.passed == 0
    assert "what it returned ended the tests' process" in verdict.failure


@pytest.mark.parametrize(
    "test",
    [
        "assert Bag(1) == [1]",
        "assert Bag(1) == {'a': 1}",
        "assert Bag(1) == 1",
        "assert Bag(1) == 'x'",
        "assert Bag(1) == {1}",
        "assert not Bag(1) != [1]",
        "assert Bag(1) + 1 == 2",
        "assert Bag(1).value() == [9]",
        "import unittest; unittest.TestCase().assertEqual(Bag(1), [1])",
    ],
)
@pytest.mark.parametrize("base", ["", "(list)", "(dict)", "(int)", "(str)"])
def test_check_program_with_a_tested_class_that_equals_plain_values(sandbox, test, base):
    program = f"""
class Bag{base}:
    def __new__(cls, *given): return super().__new__(cls)
    def __init__(self, *given): self.seen = []
    def __eq__(self, other): self.seen.append(other); return True
    def __ne__(self, other): return False
    def __iter__(self): return iter(self.seen)
    def __getitem__(self, key): return 9
    def __float__(self): return 9.0
    def __int__(self): return 9
    def __str__(self): return ""
    def __len__(self): return 1
    def __add__(self, other): return Bag()
    def value(self): return Bag()
"""
    verdict = check_program(sandbox, program, [test], entry_point="Bag")
    assert verdict.passed == 0, verdict


@pytest.mark.parametrize(
    "body",
    [
        "found.__dict__['right'] = lambda n: True",
        "found.__dict__['_n'] = 3",
        "vars(found)['n'] = 3; type(found).right = lambda self, n: True",
        "found._n = 3",
        "type(found).__eq__ = lambda self, other: True",
        "kind.__eq__ = lambda self, other: True",
        "kind.right = lambda self, n: True",
    ],
)
def test_check_program_that_changes_what_an_object_of_the_tests_decides(sandbox, body):
    program = f"def f(found, kind):\n    try: {body}\n    except Exception: pass"
    test = """
class Judge:
    def __init__(self): self._n = 9
    def right(self, n): return n == self._n
judge = Judge()
f(judge, Judge)
assert judge.right(3) or judge == 3
"""
    assert check_program(sandbox, program, [test], entry_point="f").passed == 0
    without = test.replace("self._n = 9", "pass").replace("self._n", "9")
    assert check_program(sandbox, program, [without], entry_point="f").passed == 0
