"""What tests change around the program, and what it changes around them."""

import pytest

from guerdon import open_sandbox
from guerdon.errors import SandboxUnavailableError
from guerdon.sandbox.testing.checking import check_program

# A program, its entry point, and a test that it passes, as in one process.
SAME = {
    "a function of the program's module, patched": (
        "def load(): return 1\ndef f(): return load()",
        """
from unittest.mock import patch
import solution
with patch("solution.load", return_value=5) as load:
    assert f() == 5
    load.assert_called_once_with()
assert f() == 1
solution.load = lambda: 7
assert f() == 7
""",
    ),
    "standard output": (
        "import sys\ndef f(n):\n    print('Hello', n)\n    print('no', file=sys.stderr)\n"
        "    return n",
        """
import contextlib, io, sys
from unittest.mock import patch
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    f(1)
    print('between')
    f(2)
assert out.getvalue() == 'Hello 1\\nbetween\\nHello 2\\n' and err.getvalue() == 'no\\nno\\n'
with patch('sys.stdout', new_callable=io.StringIO) as out: f(3)
assert out.getvalue() == 'Hello 3\\n' and f(4) == 4
""",
    ),
    "standard input": (
        "import sys\n"
        "def f(n): return [input('? ') for _ in range(n)] + [line for line in sys.stdin]",
        """
import io, sys
from unittest.mock import patch
with patch('sys.stdin', io.StringIO('a\\nb\\nc\\n')): assert f(2) == ['a', 'b', 'c\\n']
with patch('builtins.input', side_effect=['x', 'y']), patch('sys.stdin', io.StringIO()):
    assert f(2) == ['x', 'y']
""",
    ),
    "arguments": (
        "import sys\ndef f(): return sys.argv[1:]",
        "import sys\nfrom unittest.mock import patch\nsys.argv = ['p', '-v']\n"
        "assert f() == ['-v']\nsys.argv.append('x')\nassert f() == ['-v', 'x']\n"
        "with patch.object(sys, 'argv', ['p', 'y']): assert f() == ['y']",
    ),
    "patches": (
        """
import os, time, random, json
from pathlib import Path
def f(what):
    if what == 'time': return int(time.time()), time.sleep(1)
    if what == 'list': return os.listdir('nowhere')
    if what == 'path': return Path('nowhere').read_text()
    if what == 'random': return random.choice([1, 2])
    with open('nowhere') as file: return json.load(file), list(open('nowhere'))
""",
        """
from unittest import mock
with mock.patch('time.time', return_value=5.5), mock.patch('time.sleep') as sleep:
    assert f('time')[0] == 5
sleep.assert_called_once_with(1)
with mock.patch('os.listdir', return_value=['a']) as listed: assert f('list') == ['a']
listed.assert_called_once_with('nowhere')
with mock.patch('pathlib.Path.read_text', return_value='text'): assert f('path') == 'text'
with mock.patch('random.choice', side_effect=lambda items: items[-1]): assert f('random') == 2
with mock.patch('builtins.open', mock.mock_open(read_data='[1]\\n')) as opened:
    assert f('open') == ([1], ['[1]\\n'])
opened.assert_called_with('nowhere')
try: f('list')
except FileNotFoundError: pass
else: assert False
with mock.patch('os.listdir', side_effect=PermissionError('no')):
    try: f('list')
    except PermissionError as error: assert str(error) == 'no'
    else: assert False
""",
    ),
    "seeds": (
        "import random\ndef f(n): return [random.random() for _ in range(n)]",
        "import random\nrandom.seed(3)\na = f(5)\nrandom.seed(3)\nassert f(5) == a\n"
        "state = random.getstate()\nb = f(2)\nrandom.setstate(state)\nassert b != a[:2]",
    ),
    "environment": (
        "import os\ndef f(name):\n    os.environ['BACK'] = '1'\n    return os.environ.get(name)",
        """
import os
from unittest.mock import patch
os.environ['MODE'] = 'a'
assert f('MODE') == 'a' and os.environ['BACK'] == '1'
with patch.dict(os.environ, {'MODE': 'b'}): assert f('MODE') == 'b'
del os.environ['MODE']
assert f('MODE') is None
""",
    ),
    "folder": (
        "import os\ndef f(path):\n    with open(path) as a, open('out', 'w') as b:\n"
        "        b.write(a.read().upper())\n    return os.getcwd()",
        """
import os, tempfile
with open('in', 'w') as file: file.write('text')
before = os.getcwd()
assert f('in') == before and open('out').read() == 'TEXT'
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open('in', 'w') as file: file.write('more')
    assert f('in') == os.path.realpath(folder) and open(folder + '/out').read() == 'MORE'
    os.chdir(before)
""",
    ),
    "databases": (
        "import sqlite3\ndef f(path, given):\n    given.execute('insert into t values (2)')\n"
        "    with sqlite3.connect(path) as db: return db.execute('select x from t').fetchall()",
        "import sqlite3\n"
        "with sqlite3.connect('x.db') as db:\n    db.execute('create table t (x)')\n"
        "    db.execute('insert into t values (1)')\n    db.commit()\n"
        "    memory = sqlite3.connect(':memory:')\n    memory.execute('create table t (x)')\n"
        "    assert f('x.db', memory) == [(1,)]\n"
        "    assert memory.execute('select x from t').fetchall() == [(2,)]",
    ),
    "warnings": (
        "import warnings\ndef f(): warnings.warn('old', DeprecationWarning); return 1",
        """
import unittest, warnings
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter('always')
    assert f() == 1
assert len(found) == 1 and found[0].category is DeprecationWarning
assert str(found[0].message) == 'old'
with unittest.TestCase().assertWarns(DeprecationWarning): f()
with warnings.catch_warnings():
    warnings.simplefilter('error')
    try: f()
    except DeprecationWarning: pass
    else: assert False
""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_check_program_surroundings_are_those_of_one_process(sandbox, name):
    program, test = SAME[name]
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert verdict.failure is None


@pytest.mark.parametrize("name", ["patches", "seeds", "environment", "folder", "warnings"])
def test_check_program_surroundings_are_those_of_one_process_in_each_test(sandbox, name):
    program, test = SAME[name]
    verdict = check_program(sandbox, program, [test] * 3, entry_point="f")
    assert verdict.failure is None


def test_check_program_returns_the_output_that_no_test_captures(sandbox):
    program = "def f(n): print(n); return n"
    test = (
        "import contextlib, io\nassert f(1)\n"
        "with contextlib.redirect_stdout(io.StringIO()): f(2)\nassert f(3)"
    )
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert (verdict.passed, verdict.output) == (1, "1\n3\n")


@pytest.mark.parametrize("name", ["json", "unittest", "numbers", "colorsys", "fractions"])
def test_check_program_imports_nothing_of_the_folder_into_the_tests(sandbox, name):
    program = (
        f"source = 'import os; os.write(1, b\"+\\\\n\"); isclose = 1'\n"
        f"open('{name}.py', 'w').write(source)\n"
        f"def f(x): open('{name}.py', 'w').write(source); return 0"
    )
    tests = [f"f(1)\nimport {name}\nassert not hasattr({name}, 'isclose') and f(2) == 4"]
    verdict = check_program(sandbox, program, tests, entry_point="f")
    assert verdict.failure == "test 1 of 1: AssertionError"


NUMBERS = """
import numpy as np
def f(x): return np.int64(x)
def others(): return np.bool_(True), np.float32(0.5), np.float64(0.5), {np.int8(1): np.str_("a")}
def array(items): return np.array(items)
def double(a): a *= 2; return a
"""


@pytest.fixture(scope="module")
def with_numpy():
    pytest.importorskip("numpy")
    try:
        opened = open_sandbox("strict", workers=1, packages=["numpy"])
    except SandboxUnavailableError:
        opened = open_sandbox("process", workers=1, packages=["numpy"])
    with opened:
        yield opened


@pytest.mark.parametrize(
    "test",
    [
        "assert f(3) == 3 and type(f(3)) is int and f(2) in [1, 2] and {f(1): 2} == {1: 2}",
        "assert f(1) and others() == (True, 0.5, 0.5, {1: 'a'}) and others()[0] is True",
        "import numpy as np\na = array([[1, 2], [3, 4]])\nassert f(1) and type(a) is np.ndarray\n"
        "assert a.shape == (2, 2) and a.dtype == np.int64 and a.sum() == 10",
        "import numpy as np\na = np.array([1.5, 2.5])\nb = double(a)\nassert b is a and f(1)\n"
        "assert a.tolist() == [3.0, 5.0]\na[0] = 1\nassert double(a).tolist() == [2.0, 10.0]",
        "import numpy as np\nassert f(1) and np.allclose(array([0.1, 0.2]), [0.1, 0.2])",
        "import numpy as np\nassert f(1) and array(['a', 'bc']).tolist() == ['a', 'bc']",
    ],
)
def test_check_program_with_numpy(with_numpy, test):
    assert check_program(with_numpy, NUMBERS, [test], entry_point="f").failure is None
