"""What a program finds, and what it may take for granted of Python."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from guerdon import InvalidArgumentError, Limits, SandboxError, open_sandbox


def said(sandbox, program, **given):
    execution = sandbox.run(program, **given)
    assert execution.ending == "ok", execution
    return execution.stdout


# Standard input and files.


@pytest.mark.parametrize(
    ("stdin", "read"),
    [(b"", b""), ("", b""), ("é\n", "é\n".encode()), (b"\xff\x00\n", b"\xff\x00\n"),
     (b"x" * 300_000, b"x" * 300_000)],
    ids=["nothing", "no text", "text", "bytes", "much"],
)  # fmt: skip
def test_a_program_reads_what_is_given(shared, stdin, read):
    program = "import sys, zlib; data = sys.stdin.buffer.read(); print(len(data), zlib.crc32(data))"
    import zlib

    assert said(shared, program, stdin=stdin) == f"{len(read)} {zlib.crc32(read)}\n"


def test_a_program_reads_line_by_line(shared):
    assert said(shared, "print(input('? '), input())", stdin="a\nb\n") == "? a b\n"


def test_input_beyond_the_end_is_an_error(shared):
    execution = shared.run("input()")
    assert execution.exit_code == 1
    assert execution.stderr.endswith("EOFError: EOF when reading a line\n")


def test_files_stand_in_the_folder(shared):
    files = {"a": "é", "b/c/d": b"\xff", "b/e": "", "name with spaces": "x", ".hidden": "y"}
    program = (
        "import json, os\nfound = {}\nfor folder, _, names in os.walk('.'):\n    for name in names:\n"
        "        path = os.path.join(folder, name)\n"
        "        found[os.path.relpath(path)] = open(path, 'rb').read().hex()\n"
        "print(json.dumps(found))"
    )
    found = json.loads(said(shared, program, files=files))
    assert found == {
        name: (text.encode() if isinstance(text, str) else text).hex()
        for name, text in files.items()
    }


def test_a_file_can_be_imported_and_changed(shared):
    program = "import helper; print(helper.x); open('helper.py', 'a').write('x = 4')"
    assert said(shared, program, files={"helper.py": "x = 3\n"}) == "3\n"


def test_files_that_are_given_do_not_count(shared):
    files = {f"folder/{number}": b"x" * 1000 for number in range(20)}
    limits = Limits(files=2, file_bytes=100)
    assert shared.run("open('a', 'w').write('x' * 90)", files=files, limits=limits).ending == "ok"
    more = shared.run("for i in range(3): open(f'{i}', 'w')", files=files, limits=limits)
    assert more.ending == "output_limit"


@pytest.mark.parametrize(
    "name", ["/etc/x", "..", "../x", "a/../../x", "a/..", "", ".", "./", "a\0b", "//x"]
)
def test_a_name_that_leads_out_is_refused(shared, name):
    with pytest.raises(InvalidArgumentError, match=r"^files\["):
        shared.run("", files={name: "x"})


@pytest.mark.parametrize(
    "files",
    [{"\ud800": ""}, {"x" * 300: ""}, {"a": "", "a/b": ""}, {"a/b": "", "a": ""}],
    ids=["surrogate", "long", "file and folder", "folder and file"],
)
def test_a_name_that_no_file_can_have_is_refused(shared, files):
    with pytest.raises(InvalidArgumentError, match=r"^files"):
        shared.run("", files=files)
    assert said(shared, "print(1)") == "1\n"


@pytest.mark.parametrize("given", [{"stdin": "\ud800"}, {"files": {"a": "\ud800"}}], ids=str)
def test_text_that_is_none_is_refused(shared, given):
    with pytest.raises(InvalidArgumentError):
        shared.run("", **given)


def test_a_program_that_is_no_text_is_refused(shared):
    with pytest.raises(InvalidArgumentError):
        shared.run(b"print(1)")


def test_files_where_none_may_be_are_refused(shared):
    with pytest.raises(InvalidArgumentError, match=r"limits\.files is 0"):
        shared.run("", files={"a": "x"}, limits=Limits(files=0))


def test_nothing_can_be_written_where_no_files_may_be(level):
    program = (
        "try: print(open('a').read())\nexcept OSError as error: print(type(error).__name__)\n"
        "try: open('a', 'w').write('x')\nexcept OSError as error: print(type(error).__name__)"
    )
    with open_sandbox(level, workers=1, limits=Limits(files=0)) as sandbox:
        first, second = sandbox.run(program), sandbox.run(program)
    assert first.stdout == second.stdout, "the second finds what the first has written"
    if level == "strict":
        assert first.stdout.endswith("PermissionError\n")


# What a call finds.


def test_a_program_has_three_descriptors(shared):
    program = (
        "import os\nfor number in range(1024):\n    try: os.fstat(number)\n"
        "    except OSError: continue\n    print(number)"
    )
    assert said(shared, program).split() == ["0", "1", "2"]


def test_a_program_finds_an_environment_of_a_few_names(shared, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    with open_sandbox(shared.name, workers=1) as sandbox:
        found = json.loads(said(sandbox, "import json, os; print(json.dumps(dict(os.environ)))"))
    assert sorted(found) == [
        "HOME", "LC_ALL", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH",
        "PYTHONHASHSEED", "TMPDIR",
    ]  # fmt: skip
    assert "abc" not in found.values()


def test_the_environment_that_c_sees_is_the_same(shared):
    program = (
        "import ctypes, os\nenviron = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "
        "'environ')\ncount = 0\nwhile environ[count]: count += 1\n"
        "print(sorted(environ[i].decode().partition('=')[0] for i in range(count)) "
        "== sorted(os.environ))"
    )
    assert said(shared, program) == "True\n"


def test_a_program_stands_in_an_empty_folder_of_its_own(shared):
    program = "import os, tempfile; print(os.listdir('.'), os.getcwd(), tempfile.gettempdir())"
    first, second = (said(shared, program).split() for _ in range(2))
    for listed, folder, temporary in (first, second):
        assert (listed, folder) == ("[]", temporary)
        assert not Path(folder).exists()
    assert first[1] != second[1]


@pytest.mark.parametrize(
    "program",
    [
        "import os\nos.mkdir('a'); open('a/b', 'w').close(); os.chmod('a', 0); os.chmod('.', 0)",
        "import os\nos.mkdir('a', 0); os.mkdir('b', 0o300); open('b/c', 'w').close()",
        "import os\nfor _ in range(60): os.mkdir('x' * 200); os.chdir('x' * 200)",
        "for number in range(100): open(str(number), 'w').write('x')",
        "import os\nopen('a', 'w').close(); os.link('a', 'b'); os.chmod('a', 0)",
        "import os\nopen(b'\\xff\\n', 'w').close(); os.mkdir('\\n')",
        "import os; os.rmdir(os.getcwd())",
        "import os; os.rename(os.getcwd(), os.getcwd() + 'x')",
        "import os; os.symlink('/', 'root'); os.symlink('nowhere', 'b')",
        "import os; os.mkfifo('pipe')",
    ],
    ids=["shut", "shut from the start", "deep", "many", "linked", "odd names", "removed", "moved",
         "symlinks", "pipe"],
)  # fmt: skip
def test_nothing_of_the_folder_stays(level, temporary, program):
    with open_sandbox(level, workers=1) as sandbox:
        sandbox.run(program)
        [folder] = temporary.iterdir()
        assert list(folder.iterdir()) == []
        assert said(sandbox, "print(1)") == "1\n"
    assert list(temporary.iterdir()) == []


def test_only_the_standard_library_is_found(shared):
    program = (
        "import importlib.util, sys\nprint(sys.path[0])\nimport os; print(os.getcwd())\n"
        "for name in ('pydantic', 'pytest', 'landlockpy', 'json', 'sqlite3'):\n"
        "    print(name, importlib.util.find_spec(name) is not None)\n"
        "print(any('site-packages' in each for each in sys.path))"
    )
    first, folder, *found = said(shared, program).splitlines()
    assert first == folder
    assert found[0] == "pydantic False"
    assert found[1] == "pytest False"
    assert found[3:] == ["json True", "sqlite3 True", "False"]


def test_a_program_is_a_script(shared):
    program = (
        "import sys\nif __name__ == '__main__': print(sys.argv, sys.modules['__main__'].__dict__ "
        "is globals(), __doc__, __package__, __spec__)"
    )
    assert said(shared, program) == "['<program>'] True None None None\n"


def test_signals_are_as_python_has_them(shared):
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD})
    kept, mask = signal.signal(signal.SIGTERM, signal.SIG_IGN), os.umask(0o077)
    program = (
        "import os, signal\nprint(signal.pthread_sigmask(0, ()))\nprint(sorted(int(s) for s in "
        "signal.valid_signals() if signal.getsignal(s) != signal.SIG_DFL))\nprint(os.umask(0))\n"
        "print(signal.getsignal(2) is signal.default_int_handler, signal.set_wakeup_fd(-1))"
    )
    try:
        with open_sandbox(shared.name, workers=1) as sandbox:
            told = said(sandbox, program)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
        signal.signal(signal.SIGTERM, kept)
        os.umask(mask)
    assert told == "set()\n[2, 13, 25]\n18\nTrue -1\n"


def test_sets_come_in_the_same_order_each_time(level, shared):
    program = "print(hash('a'), list({str(number) for number in range(50)}))"
    with open_sandbox(level, workers=1) as other:
        assert said(shared, program) == said(shared, program) == said(other, program)


def test_randomness_is_not_the_same_each_time(shared):
    program = "import random, secrets, uuid; print(random.random(), secrets.token_hex(), uuid.uuid4())"
    assert len({said(shared, program) for _ in range(5)}) == 5
    drawn = {said(shared, "import random; print(random.random())") for _ in range(5)}
    assert len(drawn) == 5


def test_a_program_has_its_own_process_group(shared):
    program = "import os; print(os.getpgrp() == os.getpid())"
    assert said(shared, program) == "True\n"
    groups = {said(shared, "import os; print(os.getpgrp())") for _ in range(3)}
    assert groups.isdisjoint({f"{os.getpgrp()}\n"})


# Python as it is.


def test_a_program_writes_any_bytes(shared):
    assert said(shared, "import os; os.write(1, b'a\\xffb')") == "a\ufffdb"


def test_a_program_prints_any_text(shared):
    assert said(shared, "print('é\\U0001f600\\ud800')") == "é\U0001f600\\ud800\n"


def test_lines_are_read_as_text_of_any_kind(shared):
    assert said(shared, "print(ascii(input()))", stdin=b"\xff\n") == "'\\udcff'\n"


@pytest.mark.parametrize(
    ("source", "stdout"),
    [("", ""), ("#", ""), ("\ufeffprint(1)", "1\n"), ("print(1)\r\nprint(2)\r", "1\n2\n"),
     ("# -*- coding: latin-1 -*-\nprint('é')", "é\n"), ("x = 1\n" * 30_000 + "print(x)", "1\n"),
     ("print('''" + "y" * 900_000 + "'''.count('y'))", "900000\n"),
     ("from __future__ import annotations\ndef f(x: nothing): pass\nprint(1)", "1\n")],
    ids=["empty", "comment", "BOM", "CR", "declared coding", "many lines", "1 MB", "future"],
)  # fmt: skip
def test_a_source_of_any_shape_runs(shared, source, stdout):
    assert said(shared, source) == stdout


@pytest.mark.parametrize(
    ("source", "error"),
    [("print(1)\0", "SyntaxError"), ("print('\ud800')", "UnicodeEncodeError"),
     ("def (:", "SyntaxError"), ("\tx\n  y", "IndentationError"), ("return", "SyntaxError"),
     ("(" * 500, "SyntaxError"), ("import nowhere", "ModuleNotFoundError")],
    ids=["NUL", "surrogate", "syntax", "indentation", "outside", "deep", "import"],
)  # fmt: skip
def test_a_source_that_is_no_python_says_so(shared, source, error):
    execution = shared.run(source)
    assert (execution.ending, execution.exit_code) == ("nonzero", 1)
    assert execution.stderr.splitlines()[-1].startswith(error)


def test_a_future_of_ours_is_none_of_a_programs(shared):
    assert said(shared, "def f(x: int): pass\nprint(f.__annotations__['x'])") == "<class 'int'>\n"


@pytest.mark.parametrize(
    "program",
    ["1 / 0", "def f():\n    1 / 0\nf()", "raise KeyboardInterrupt", "assert False, 'x'",
     "try:\n    1 / 0\nexcept Exception as error:\n    raise KeyError('x') from error",
     "raise ExceptionGroup('several', [ValueError(1)])", "def f(): f()\nf()",
     "import json; json.loads('x')"],
    ids=["line", "function", "ctrl-C", "assert", "cause", "group", "recursion", "library"],
)  # fmt: skip
def test_a_traceback_shows_the_program_and_nothing_of_ours(shared, program):
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
def test_an_error_that_cannot_be_printed_is_one(shared, program):
    assert shared.run(program).exit_code == 1


def test_functions_for_the_end_are_called(shared):
    execution = shared.run(
        "import atexit\natexit.register(print, 'bye')\natexit.register(lambda: 1 / 0)\nprint('hello')"
    )
    assert (execution.exit_code, execution.stdout) == (0, "hello\nbye\n")
    assert "ZeroDivisionError" in execution.stderr


def test_threads_are_waited_for(shared):
    program = (
        "import threading\nend = threading.Event()\n"
        "threading.Thread(target=lambda: (end.wait(), print('late'))).start()\n"
        "threading.Timer(0.01, end.set).start()\nprint('early')"
    )
    assert said(shared, program) == "early\nlate\n"


def test_daemons_are_not_waited_for(shared):
    program = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert said(shared, program) == ""


def test_what_was_printed_to_a_stream_that_was_replaced_is_kept(shared):
    program = (
        "import io, sys\nold = sys.stdout\nprint('a')\nprint('b', file=sys.__stdout__)\n"
        "sys.stdout = io.StringIO()\nprint('c')"
    )
    assert sorted(said(shared, program).split()) == ["a", "b"]


def test_a_fork_prints_nothing_twice(shared):
    program = "import os\nprint('once', flush=True)\nif os.fork(): os.wait(); print('parent')\nelse: print('child')"
    assert said(shared, program).split() == ["once", "child", "parent"]


def test_a_child_of_a_program_leaves_by_itself(shared):
    program = "import os, sys\nif not os.fork(): sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    assert said(shared, program) == "3\n"


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
def test_the_standard_library_works(shared, program, stdout):
    assert said(shared, program) == stdout


def test_unittest_tells_by_its_exit_code(shared):
    program = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, {})\nunittest.main()"
    assert shared.run(program.format(1)).ending == "ok"
    failing = shared.run(program.format(2))
    assert failing.exit_code == 1
    assert "AssertionError: 1 != 2" in failing.stderr


def test_processes_by_fork_work(shared):
    program = (
        "import multiprocessing, os\ncontext = multiprocessing.get_context('fork')\n"
        "def work(end): end.send(os.getppid())\nif __name__ == '__main__':\n"
        "    here, there = context.Pipe()\n    process = context.Process(target=work, args=(there,))\n"
        "    process.start(); print(here.recv() == os.getpid()); process.join(); print(process.exitcode)"
    )
    assert said(shared, program) == "True\n0\n"


def test_what_a_call_changes_no_other_finds(shared):
    said(
        shared,
        "import json, os, sys, builtins, random, warnings\njson.dumps = None\nos.environ['X'] = '1'\n"
        "builtins.print = lambda *args: None\nsys.path.append('x')\nsys.modules['re'] = None\n"
        "sys.setrecursionlimit(50)\nrandom.seed(1)\nwarnings.filterwarnings('error')",
    )
    program = (
        "import json, os, re, sys\nprint(json.dumps(1), 'X' in os.environ, 'x' in sys.path, "
        "sys.getrecursionlimit())"
    )
    assert said(shared, program) == "1 False False 1000\n"


def test_the_error_of_the_sandbox_has_the_execution(level):
    sandbox = open_sandbox(level, workers=1)
    sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("print(1)")


def test_the_promise_is_a_line(shared):
    assert re.fullmatch(r".{20,200}", shared.promise)
