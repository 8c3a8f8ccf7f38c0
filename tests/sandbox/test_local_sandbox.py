# ruff: noqa: E501  (programs, a line each)
"""What a program is given, and what it finds."""

import json
import os
import signal
from pathlib import Path

import pytest

from guerdon import Limits, open_sandbox
from guerdon.errors import InvalidArgumentError

# Standard input and files.


@pytest.mark.parametrize(
    ("stdin", "read"),
    [(b"", b""), ("", b""), ("é\n", "é\n".encode()), (b"\xff\x00\n", b"\xff\x00\n"),
     (b"x" * 300_000, b"x" * 300_000)],
    ids=["nothing", "no text", "text", "bytes", "much"],
)  # fmt: skip
def test_run_passes_stdin(printed, shared, stdin, read):
    program = "import sys, zlib; data = sys.stdin.buffer.read(); print(len(data), zlib.crc32(data))"
    import zlib

    assert printed(shared, program, stdin=stdin) == f"{len(read)} {zlib.crc32(read)}\n"


def test_run_lets_a_program_read_lines(printed, shared):
    assert printed(shared, "print(input('? '), input())", stdin="a\nb\n") == "? a b\n"


def test_run_raises_eof_error_in_a_program_without_input(shared):
    execution = shared.run("input()")
    assert execution.exit_code == 1
    assert execution.stderr.endswith("EOFError: EOF when reading a line\n")


def test_run_writes_files_into_the_folder(printed, shared):
    files = {"a": "é", "b/c/d": b"\xff", "b/e": "", "name with spaces": "x", ".hidden": "y"}
    program = (
        "import json, os\nfound = {}\nfor folder, _, names in os.walk('.'):\n    for name in names:\n"
        "        path = os.path.join(folder, name)\n"
        "        found[os.path.relpath(path)] = open(path, 'rb').read().hex()\n"
        "print(json.dumps(found))"
    )
    found = json.loads(printed(shared, program, files=files))
    assert found == {
        name: (text.encode() if isinstance(text, str) else text).hex()
        for name, text in files.items()
    }


def test_run_lets_a_program_import_and_change_its_files(printed, shared):
    program = "import helper; print(helper.x); open('helper.py', 'a').write('x = 4')"
    assert printed(shared, program, files={"helper.py": "x = 3\n"}) == "3\n"


def test_run_does_not_count_given_files(shared):
    files = {f"folder/{number}": b"x" * 1000 for number in range(20)}
    limits = Limits(files=2, file_bytes=100)
    assert shared.run("open('a', 'w').write('x' * 90)", files=files, limits=limits).ending == "ok"
    more = shared.run("for i in range(3): open(f'{i}', 'w')", files=files, limits=limits)
    assert more.ending == "output_limit"


@pytest.mark.parametrize(
    "name", ["/etc/x", "..", "../x", "a/../../x", "a/..", "", ".", "./", "a\0b", "//x"]
)
def test_run_refuses_a_file_name_that_leads_out(shared, name):
    with pytest.raises(InvalidArgumentError, match=r"^`files` must have relative names"):
        shared.run("", files={name: "x"})


@pytest.mark.parametrize(
    "files",
    [{"\ud800": ""}, {"x" * 300: ""}, {"a": "", "a/b": ""}, {"a/b": "", "a": ""}],
    ids=["surrogate", "long", "file and folder", "folder and file"],
)
def test_run_refuses_an_impossible_file_name(printed, shared, files):
    with pytest.raises(InvalidArgumentError, match=r"^`files`"):
        shared.run("", files=files)
    assert printed(shared, "print(1)") == "1\n"


@pytest.mark.parametrize("given", [{"stdin": "\ud800"}, {"files": {"a": "\ud800"}}], ids=str)
def test_run_refuses_text_that_utf8_cannot_encode(shared, given):
    with pytest.raises(InvalidArgumentError):
        shared.run("", **given)


def test_run_refuses_a_program_that_is_not_text(shared):
    with pytest.raises(InvalidArgumentError):
        shared.run(b"print(1)")


def test_run_refuses_files_if_the_limit_is_zero(shared):
    with pytest.raises(InvalidArgumentError, match=r"limits\.files is 0"):
        shared.run("", files={"a": "x"}, limits=Limits(files=0))


def test_run_without_files_refuses_writing(level):
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


def test_run_gives_a_program_three_descriptors(printed, shared):
    program = (
        "import os\nfor number in range(1024):\n    try: os.fstat(number)\n"
        "    except OSError: continue\n    print(number)"
    )
    assert printed(shared, program).split() == ["0", "1", "2"]


def test_run_gives_a_program_a_small_environment(printed, shared, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    with open_sandbox(shared.level, workers=1) as sandbox:
        found = json.loads(printed(sandbox, "import json, os; print(json.dumps(dict(os.environ)))"))
    assert sorted(found) == [
        "HOME", "LC_ALL", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH",
        "PYTHONHASHSEED", "TMPDIR",
    ]  # fmt: skip
    assert "abc" not in found.values()


def test_run_gives_c_code_the_same_environment(printed, shared):
    program = (
        "import ctypes, os\nenviron = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "
        "'environ')\ncount = 0\nwhile environ[count]: count += 1\n"
        "print(sorted(environ[i].decode().partition('=')[0] for i in range(count)) "
        "== sorted(os.environ))"
    )
    assert printed(shared, program) == "True\n"


def test_run_starts_a_program_in_an_empty_folder(printed, shared):
    program = "import os, tempfile; print(os.listdir('.'), os.getcwd(), tempfile.gettempdir())"
    first, second = (printed(shared, program).split() for _ in range(2))
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
def test_run_removes_the_folder(printed, level, temporary, program):
    with open_sandbox(level, workers=1) as sandbox:
        sandbox.run(program)
        [folder] = temporary.iterdir()
        assert list(folder.iterdir()) == []
        assert printed(sandbox, "print(1)") == "1\n"
    assert list(temporary.iterdir()) == []


def test_run_finds_only_the_standard_library(printed, shared):
    program = (
        "import importlib.util, sys\nprint(sys.path[0])\nimport os; print(os.getcwd())\n"
        "for name in ('pydantic', 'pytest', 'landlockpy', 'json', 'sqlite3'):\n"
        "    print(name, importlib.util.find_spec(name) is not None)\n"
        "print(any('site-packages' in each for each in sys.path))"
    )
    first, folder, *found = printed(shared, program).splitlines()
    assert first == folder
    assert found[0] == "pydantic False"
    assert found[1] == "pytest False"
    assert found[3:] == ["json True", "sqlite3 True", "False"]


def test_run_executes_a_program_as_main(printed, shared):
    program = (
        "import sys\nif __name__ == '__main__': print(sys.argv, sys.modules['__main__'].__dict__ "
        "is globals(), __doc__, __package__, __spec__)"
    )
    assert printed(shared, program) == "['<program>'] True None None None\n"


def test_run_keeps_the_signal_handlers_of_python(printed, shared):
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD})
    kept, mask = signal.signal(signal.SIGTERM, signal.SIG_IGN), os.umask(0o077)
    program = (
        "import os, signal\nprint(signal.pthread_sigmask(0, ()))\nprint(sorted(int(s) for s in "
        "signal.valid_signals() if signal.getsignal(s) != signal.SIG_DFL))\nprint(os.umask(0))\n"
        "print(signal.getsignal(2) is signal.default_int_handler, signal.set_wakeup_fd(-1))"
    )
    try:
        with open_sandbox(shared.level, workers=1) as sandbox:
            outcome = printed(sandbox, program)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
        signal.signal(signal.SIGTERM, kept)
        os.umask(mask)
    assert outcome == "set()\n[2, 13, 25]\n18\nTrue -1\n"


def test_run_orders_sets_the_same_each_time(printed, level, shared):
    program = "print(hash('a'), list({str(number) for number in range(50)}))"
    with open_sandbox(level, workers=1) as other:
        assert printed(shared, program) == printed(shared, program) == printed(other, program)


def test_run_seeds_random_anew_each_time(printed, shared):
    program = (
        "import random, secrets, uuid; print(random.random(), secrets.token_hex(), uuid.uuid4())"
    )
    assert len({printed(shared, program) for _ in range(5)}) == 5
    drawn = {printed(shared, "import random; print(random.random())") for _ in range(5)}
    assert len(drawn) == 5


def test_run_gives_a_program_its_own_process_group(printed, shared):
    program = "import os; print(os.getpgrp() == os.getpid())"
    assert printed(shared, program) == "True\n"
    groups = {printed(shared, "import os; print(os.getpgrp())") for _ in range(3)}
    assert groups.isdisjoint({f"{os.getpgrp()}\n"})
