# ruff: noqa: E501  (programs, a line each)
"""What a program may take for granted of Python."""

import re

import pytest

from guerdon import open_sandbox
from guerdon.errors import SandboxError


def test_run_captures_any_bytes(printed, shared):
    assert printed(shared, "import os; os.write(1, b'a\\xffb')") == "a\ufffdb"


def test_run_captures_any_text(printed, shared):
    assert printed(shared, "print('é\\U0001f600\\ud800')") == "é\U0001f600\\ud800\n"


def test_run_reads_any_text_as_lines(printed, shared):
    assert printed(shared, "print(ascii(input()))", stdin=b"\xff\n") == "'\\udcff'\n"


@pytest.mark.parametrize(
    ("source", "stdout"),
    [("", ""), ("#", ""), ("\ufeffprint(1)", "1\n"), ("print(1)\r\nprint(2)\r", "1\n2\n"),
     ("# -*- coding: latin-1 -*-\nprint('é')", "é\n"), ("x = 1\n" * 30_000 + "print(x)", "1\n"),
     ("print('''" + "y" * 900_000 + "'''.count('y'))", "900000\n"),
     ("from __future__ import annotations\ndef f(x: nothing): pass\nprint(1)", "1\n")],
    ids=["empty", "comment", "BOM", "CR", "declared coding", "many lines", "1 MB", "future"],
)  # fmt: skip
def test_run_accepts_any_source(printed, shared, source, stdout):
    assert printed(shared, source) == stdout


@pytest.mark.parametrize(
    ("source", "error"),
    [("print(1)\0", "SyntaxError"), ("print('\ud800')", "UnicodeEncodeError"),
     ("def (:", "SyntaxError"), ("\tx\n  y", "IndentationError"), ("return", "SyntaxError"),
     ("(" * 500, "SyntaxError"), ("import nowhere", "ModuleNotFoundError")],
    ids=["NUL", "surrogate", "syntax", "indentation", "outside", "deep", "import"],
)  # fmt: skip
def test_run_reports_a_syntax_error(shared, source, error):
    execution = shared.run(source)
    assert (execution.ending, execution.exit_code) == ("nonzero", 1)
    assert execution.stderr.splitlines()[-1].startswith(error)


def test_run_compiles_without_our_future_imports(printed, shared):
    assert (
        printed(shared, "def f(x: int): pass\nprint(f.__annotations__['x'])") == "<class 'int'>\n"
    )


@pytest.mark.parametrize(
    "program",
    ["1 / 0", "def f():\n    1 / 0\nf()", "raise KeyboardInterrupt", "assert False, 'x'",
     "try:\n    1 / 0\nexcept Exception as error:\n    raise KeyError('x') from error",
     "raise ExceptionGroup('several', [ValueError(1)])", "def f(): f()\nf()",
     "import json; json.loads('x')"],
    ids=["line", "function", "ctrl-C", "assert", "cause", "group", "recursion", "library"],
)  # fmt: skip
def test_run_prints_a_traceback_of_the_program_alone(shared, program):
    execution = shared.run(program)
    assert execution.exit_code == 1
    assert 'File "<program>", line' in execution.stderr
    assert program.splitlines()[-1].strip() in execution.stderr
    assert "guerdon" not in execution.stderr
    assert "exec(" not in execution.stderr


@pytest.mark.parametrize(
    "program",
    ["class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
     "class E(Exception):\n    def __str__(self): raise SystemExit(0)\nraise E",
     "import sys\nsys.stderr = None\n1 / 0", "import traceback\ndel traceback.print_exception\n1/0",
     "import sys\nsys.excepthook = None\n1/0"],
    ids=["raises", "leaves", "no errors", "no traceback", "no hook"],
)  # fmt: skip
def test_run_reports_an_error_that_cannot_be_printed(shared, program):
    assert shared.run(program).exit_code == 1


def test_run_calls_atexit_functions(shared):
    execution = shared.run(
        "import atexit\natexit.register(print, 'bye')\natexit.register(lambda: 1 / 0)\nprint('hello')"
    )
    assert (execution.exit_code, execution.stdout) == (0, "hello\nbye\n")
    assert "ZeroDivisionError" in execution.stderr


def test_run_waits_for_threads(printed, shared):
    program = (
        "import threading\nend = threading.Event()\n"
        "threading.Thread(target=lambda: (end.wait(), print('late'))).start()\n"
        "threading.Timer(0.01, end.set).start()\nprint('early')"
    )
    assert printed(shared, program) == "early\nlate\n"


def test_run_does_not_wait_for_daemon_threads(printed, shared):
    program = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    assert printed(shared, program) == ""


def test_run_flushes_replaced_streams(printed, shared):
    program = (
        "import io, sys\nold = sys.stdout\nprint('a')\nprint('b', file=sys.__stdout__)\n"
        "sys.stdout = io.StringIO()\nprint('c')"
    )
    assert sorted(printed(shared, program).split()) == ["a", "b"]


def test_run_flushes_only_once_after_a_fork(printed, shared):
    program = "import os\nprint('once', flush=True)\nif os.fork(): os.wait(); print('parent')\nelse: print('child')"
    assert printed(shared, program).split() == ["once", "child", "parent"]


def test_run_lets_a_child_exit_by_itself(printed, shared):
    program = "import os, sys\nif not os.fork(): sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    assert printed(shared, program) == "3\n"


@pytest.mark.parametrize(
    ("program", "stdout"),
    [
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0); return 1\nprint(asyncio.run(f()))", "1\n"),
        ("import asyncio\nasync def f(): return await asyncio.to_thread(len, 'abc')\nprint(asyncio.run(f()))", "3\n"),
        ("import tempfile\nwith tempfile.NamedTemporaryFile() as f, tempfile.TemporaryDirectory(): print(f.write(b'x'))", "1\n"),
        ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)", "True\n"),
        ("from dataclasses import dataclass\n@dataclass(slots=True)\nclass A:\n    x: 'int' = 3\nprint(A())", "A(x=3)\n"),
        ("import inspect\ndef f(): return 1\nprint(inspect.getsource(f), end='')", "def f(): return 1\n"),
        ("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(3) as e: print(sum(e.map(len, ['a', 'bb'])))", "3\n"),
        ("from typing import get_type_hints\ndef f(x: 'int'): pass\nprint(get_type_hints(f))", "{'x': <class 'int'>}\n"),
        ("import sqlite3; print(sqlite3.connect(':memory:').execute('select 1').fetchone())", "(1,)\n"),
        ("import doctest\ndef f():\n    '''\n    >>> f()\n    1\n    '''\n    return 1\nprint(doctest.testmod())", "TestResults(failed=0, attempted=1)\n"),
        ("from zoneinfo import ZoneInfo; from datetime import datetime\nprint(datetime(2026, 1, 1).year)", "2026\n"),
        ("import hashlib, decimal, fractions, zlib; print(hashlib.md5(b'').hexdigest()[:4])", "d41d\n"),
    ],
    ids=["asyncio", "to_thread", "tempfile", "pickle", "dataclass", "getsource", "executor", "hints", "sqlite",
         "doctest", "zones", "hashlib"],
)  # fmt: skip
def test_run_supports_the_standard_library(printed, shared, program, stdout):
    assert printed(shared, program) == stdout


def test_run_reports_the_exit_code_of_unittest(shared):
    program = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, {})\nunittest.main()"
    assert shared.run(program.format(1)).ending == "ok"
    failing = shared.run(program.format(2))
    assert failing.exit_code == 1
    assert "AssertionError: 1 != 2" in failing.stderr


def test_run_supports_multiprocessing_by_fork(printed, shared):
    program = (
        "import multiprocessing, os\ncontext = multiprocessing.get_context('fork')\n"
        "def work(end): end.send(os.getppid())\nif __name__ == '__main__':\n"
        "    here, there = context.Pipe()\n    process = context.Process(target=work, args=(there,))\n"
        "    process.start(); print(here.recv() == os.getpid()); process.join(); print(process.exitcode)"
    )
    assert printed(shared, program) == "True\n0\n"


def test_run_isolates_changes_between_calls(printed, shared):
    printed(
        shared,
        "import json, os, sys, builtins, random, warnings\njson.dumps = None\nos.environ['X'] = '1'\n"
        "builtins.print = lambda *args: None\nsys.path.append('x')\nsys.modules['re'] = None\n"
        "sys.setrecursionlimit(50)\nrandom.seed(1)\nwarnings.filterwarnings('error')",
    )
    program = (
        "import json, os, re, sys\nprint(json.dumps(1), 'X' in os.environ, 'x' in sys.path, "
        "sys.getrecursionlimit())"
    )
    assert printed(shared, program) == "1 False False 1000\n"


def test_sandbox_error_has_the_execution(level):
    sandbox = open_sandbox(level, workers=1)
    sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("print(1)")


def test_sandbox_promise_is_one_line(shared):
    assert re.fullmatch(r".{20,200}", shared.promise)
