"""`check_output`: comparisons, endings, cheats, and errors of a task."""

import asyncio
import os
import random
import sys

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Limits, check_output
from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox import Execution, check_output_async

ADD = "print(sum(map(int, input().split())))"
CASES = [("1 2\n", "3\n"), ("2 2\n", "4\n"), ("0 0\n", "0\n")]


class Printer:
    """A sandbox in which every program prints the same."""

    def __init__(self, printed):
        self.printed = printed

    def run(self, program, **given):
        return Execution("ok", exit_code=0, stdout=self.printed)


def accepts(compare, expected, printed):
    return check_output(Printer(printed), "", [("", expected)], compare=compare).passed == 1


# Comparisons --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compare", "expected", "printed", "accepted"),
    [
        ("whitespace", "1 2\n3\n", "1\t2 \r\n\n 3", True),
        ("whitespace", "", " \n", True),
        ("whitespace", "1 2", "12", False),
        ("whitespace", "1 2", "2 1", False),
        ("whitespace", "YES", "yes", False),
        ("whitespace", "1", "1.0", False),
        ("whitespace", "1", "1\0", False),
        ("exact", "1 2\n", "1 2", True),
        ("exact", "1 2", "1 2\n", True),
        ("exact", "1 2\n", "1 2\n\n", False),
        ("exact", "1 2\n", "1  2\n", False),
        ("exact", "1\n2\n", "1\r\n2\r\n", False),
        ("lines", "a 1\nb\nb\n", "b\n\nb \na  1", True),
        ("lines", "a\nb\nb\n", "a\na\nb\n", False),
        ("lines", "a\nb\n", "a\nb\nc\n", False),
        ("lines", "a b\n", "b a\n", False),
        ("lines", "a b\n", "a\nb\n", False),
    ],
)
def test_check_output_compares_texts(compare, expected, printed, accepted):
    assert accepts(compare, expected, printed) is accepted


@pytest.mark.parametrize(
    ("expected", "printed", "accepted"),
    [
        ("0.3333333333", "0.3333333", True),
        ("0.3333333333", ".33333e0", False),
        ("0.3333333333", "3.333333e-1", True),
        ("1e9", "1000000500", True),
        ("1e9", "1000005000", False),
        ("0", "1e-7", True),
        ("0", "-1E-5", False),
        ("3", "3.", True),
        ("+3", "3", True),
        ("0", "-0.0", True),
        ("Yes 0.5", "Yes 0.50000001", True),
        ("Yes 0.5", "No 0.5", False),
        ("0.5 0.5", "0.5", False),
        # Integers: a remainder by 10**9 + 7, and what `/` makes of a large one.
        ("123456789", "123456780", False),
        ("333333333333333333", "333333333333333312", False),
        ("9" * 5000, "9" * 4999 + "8", False),
        ("9" * 5000, "+" + "9" * 5000, True),
        # Not numbers, and those that no float can represent.
        ("0.5", "nan", False),
        ("nan", "nan", True),
        ("nan", "0.5", False),
        ("0.5", "inf", False),
        ("1e999", "inf", False),
        ("1e999", "2e999", False),
        ("0.5", "1e999", False),
        ("1e999", "1e999", True),
        # Other spellings that `float` reads.
        ("1000.0", "1_000.0", False),
        ("1.5", "١.٥", False),
        ("1.5", "1,5", False),
        ("16.0", "0x10", False),
        ("0.5", "0.5\0", False),
        ("0.5", "0.5" + "0" * 1_000_000, True),
        ("0.5", "5" + "0" * 1_000_000 + "x", False),
        ("1.0", "1" * 1_000_000, False),
        ("1.0", "1" * 1_000_000 + "e-999999", False),
    ],
)
def test_check_output_compares_floats(expected, printed, accepted):
    assert accepts("float", expected, printed) is accepted


words = st.text(st.characters(codec="utf-8"), max_size=8).filter(
    lambda text: text.split() == [text]
)
numbers = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers().map(str)
outputs = st.lists(st.lists(words | numbers, min_size=1, max_size=4), max_size=6)


def joined(lines, blank=" ", line_break="\n"):
    return line_break.join(blank.join(line) for line in lines)


@given(outputs, st.sampled_from([" ", "\t", "  "]), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_check_output_accepts_the_same_words(lines, blank, line_break):
    for compare in ("whitespace", "float", "lines"):
        assert accepts(compare, joined(lines), joined(lines, blank, line_break))
    assert accepts("exact", joined(lines), joined(lines) + "\n")


@given(outputs, st.randoms(use_true_random=False))
def test_check_output_accepts_lines_in_any_order(lines, generator):
    mixed = generator.sample(lines, len(lines))
    assert accepts("lines", joined(lines), joined(mixed))


@given(outputs, outputs)
def test_check_output_comparisons_have_an_order(one, other):
    """The others accept what a stricter comparison accepts."""
    one, other = joined(one), joined(other)
    if accepts("exact", one, other):
        assert accepts("whitespace", one, other)
        assert accepts("lines", one, other)
    if accepts("whitespace", one, other):
        assert accepts("float", one, other)


@given(st.floats(-1e300, 1e300), st.floats(-1e-5, 1e-5))
def test_check_output_accepts_floats_within_the_tolerance(number, error):
    printed = number * (1 + error)
    close = abs(printed - number) <= 1e-6 * max(1, abs(number), abs(printed))
    assert accepts("float", repr(number), repr(printed)) is close


# Runs ---------------------------------------------------------------------------------------------


def test_check_output_reports_each_case(shared):
    verdict = check_output(shared, ADD, CASES)
    assert (verdict.tests, verdict.failure) == ((True, True, True), None)
    assert (verdict.compiled, verdict.ended, verdict.output) == (True, "ok", "3\n4\n0\n")
    assert verdict.seconds > 0
    verdict = check_output(shared, "a, b = input().split(); print(2 * int(a) + 1)", CASES)
    assert (verdict.tests, verdict.fraction) == ((True, False, False), 1 / 3)
    assert (verdict.failure, verdict.ended) == ("case 2 of 3: wrong output", "ok")


def test_check_output_runs_the_program_as_a_script(shared):
    program = "import sys\nif __name__ == '__main__': print(len(sys.argv), repr(sys.stdin.read()))"
    assert check_output(shared, program, [("a\r\n", "1 'a\\r\\n'\n")]).passed == 0
    assert check_output(shared, program, [("é\0", "1 'é\\x00'\n")], compare="exact").passed == 1


def test_check_output_with_an_interactive_loop_and_unread_input(shared):
    program = "while True:\n  n = int(input())\n  if n == 0: break\n  print(n * n, flush=True)"
    assert check_output(shared, program, [("2\n3\n0\n9\n", "4\n9\n")]).passed == 1
    assert check_output(shared, "print(1)", [("x" * 1_000_000, "1")]).passed == 1


@pytest.mark.parametrize(
    ("program", "ended", "failure"),
    [
        ("print(1 / 0)", "nonzero", "it exited with code 1: ZeroDivisionError: division by zero"),
        ("print(3)\nraise SystemExit(3)", "nonzero", "it exited with code 3"),
        ("print(3)\nraise ValueError('\\x1b[31m' + 'x' * 9999)", "nonzero", "ValueError: [31mxxx"),
        ("import os; os.kill(os.getpid(), 15)", "signal", "it was killed by signal 15 (SIGTERM)"),
        ("print(3, flush=True)\nwhile True: pass", "timeout", "it was not done within 0.3 s"),
        ("x = [0] * 10**14", "memory", "it ran out of memory; it may use 256 MiB"),
        ("print('3 ' * 100_000)", "output_limit", "it printed more than 64 KiB"),
        ("open('a', 'wb').write(bytes(2_000_000))\nprint(3)", "output_limit", "into files"),
        ("exit()", "ok", "it printed nothing"),
        ("print(4)", "ok", "wrong output"),
    ],
)
def test_check_output_reports_how_a_case_failed(shared, program, ended, failure):
    limits = Limits(seconds=0.3 if ended == "timeout" else 5)
    verdict = check_output(shared, program, [("", "3")], limits=limits)
    assert (verdict.compiled, verdict.passed, verdict.ended) == (True, 0, ended)
    assert verdict.failure.startswith("case 1 of 1: ")
    assert failure in verdict.failure
    assert len(verdict.failure) < 400


def test_check_output_continues_after_a_case_that_ended_early(shared):
    program = "n = int(input())\nif n == 0: 1 / n\nif n == 1: raise SystemExit(2)\nprint(n)"
    cases = [("2", "2"), ("0", "0"), ("1", "1"), ("3", "3")]
    verdict = check_output(shared, program, cases)
    assert (verdict.tests, verdict.ended) == ((True, False, False, True), "nonzero")
    assert verdict.failure.startswith("case 2 of 4: it exited with code 1: ZeroDivisionError")


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("def (", "line 1: invalid syntax"),
        ("import os\nreturn os", "line 2: 'return' outside function"),
        ("a\0b", "null bytes"),
        ("'\udc80'", "surrogates not allowed"),
        ("(" * 10_000, "too many nested parentheses"),
        ("-" * 30_000 + "1", "Error"),
        ("x = '\\d'\ndef (", "line 2: invalid syntax"),
    ],
    ids=["syntax", "return", "null", "surrogate", "parentheses", "signs", "warning"],
)
def test_check_output_reports_compile_errors(shared, program, error):
    verdict = check_output(shared, program, CASES)
    assert (verdict.compiled, verdict.tests) == (False, (False, False, False))
    assert (verdict.failure, verdict.ended) == (None, "ok")
    assert error in verdict.compile_error


def test_check_output_compiles_a_program_with_a_byte_order_mark(shared):
    assert check_output(shared, "\ufeff" + ADD, CASES).passed == 3
    verdict = check_output(shared, "\ufeff1 / 0", CASES)
    assert verdict.compiled
    assert "ZeroDivisionError" in verdict.failure


def test_check_output_with_a_program_that_only_raises_a_syntax_error(shared):
    verdict = check_output(shared, "raise SyntaxError('invalid syntax')", CASES)
    assert verdict.compiled
    assert verdict.failure.endswith("SyntaxError: invalid syntax")


def test_check_output_has_room_for_a_long_expected_output(shared):
    long = "7 " * 50_000
    limits = Limits(output_bytes=100)
    assert check_output(shared, "print('7 ' * 50_000)", [("", long)], limits=limits).passed == 1
    program = "print('7 ' * 50_000)\nprint(' ' * 100)"
    verdict = check_output(shared, program, [("", long)], limits=limits)
    assert (verdict.passed, verdict.ended, len(verdict.output)) == (0, "output_limit", 100)


def test_check_output_limits_what_a_verdict_keeps(shared):
    program = "print('é' * 40)"
    verdict = check_output(shared, program, CASES, limits=Limits(output_bytes=101))
    assert verdict.output == "é" * 40 + "\n" + "é" * 10


# Cheats -------------------------------------------------------------------------------------------


def test_check_output_leaves_nothing_for_the_next_case(shared):
    program = "import os, sys\nprint(len(os.listdir('.')), len(os.listdir(os.environ['TMPDIR'])))\n"
    program += "open('answer', 'w').write(sys.stdin.read())\nos.environ['ANSWER'] = '1'"
    assert check_output(shared, program, [("", "0 0")] * 3).passed == 3


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_check_output_sends_no_expected_output_to_the_program(shared):
    """The program searches its memory and its files for the expected output."""
    secret = "".join(random.Random(7).choices("abcdefghijklmnop", k=40))
    program = """
import os
half = input()
found = []
try:
    maps = open("/proc/self/maps").read().splitlines()
    memory = open("/proc/self/mem", "rb", 0)
except OSError:
    maps = []
for line in maps:
    begin, end = (int(each, 16) for each in line.split()[0].split("-"))
    if " rw" in line:
        try:
            memory.seek(begin)
            found += [each[:20] for each in memory.read(end - begin).split(half.encode())[1:]]
        except (OSError, ValueError, OverflowError):
            pass
for fd in range(100):
    try:
        found += [each[:20] for each in os.pread(fd, 1 << 20, 0).split(half.encode())[1:]]
    except OSError:
        pass
print(half, found)
"""
    shown = []

    def compare(stdin, expected, printed):
        shown.append(printed)
        return True

    limits = Limits(memory_bytes=1 << 30)
    verdict = check_output(shared, program, [(secret[:20], secret)], compare=compare, limits=limits)
    assert verdict.passed == 1, verdict.failure
    assert secret[:20] in shown[0]
    assert secret[20:] not in shown[0]


def test_check_output_does_not_show_what_is_expected(shared):
    for program in ("print(1)", "1 / 0", "pass"):
        verdict = check_output(shared, program, [("", "87654321")])
        assert "87654321" not in str(verdict)


# Checkers -----------------------------------------------------------------------------------------


def divides(stdin, expected, printed):
    number = printed.strip()
    return number.isdecimal() and int(number) > 1 and int(stdin) % int(number) == 0


def test_check_output_with_a_checker_accepts_several_answers(shared):
    cases = [("12", "2"), ("15", "3")]
    assert check_output(shared, "print(input())", cases, compare=divides).passed == 2
    assert check_output(shared, "print(4)", cases, compare=divides).tests == (True, False)
    assert check_output(shared, "print('x')", cases, compare=divides).passed == 0
    failed = check_output(shared, "print(3)\nexit(1)", cases, compare=lambda *_: True)
    assert failed.passed == 0


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (lambda *_: 1 / 0, "case 1 of 1: ZeroDivisionError: division by zero"),
        (lambda stdin: True, "case 1 of 1: TypeError"),
        (lambda *_: None, "case 1 of 1: it must return True or False, got None"),
        (lambda *_: "no", "case 1 of 1: it must return True or False, got 'no'"),
        (lambda *_: 0.5, "case 1 of 1: it must return True or False, got 0.5"),
    ],
)
def test_check_output_raises_if_a_checker_fails(compare, message):
    with pytest.raises(InvalidArgumentError, match=f"`compare` failed on {message}"):
        check_output(Printer("1"), "", [("", "1")], compare=compare)


def test_check_output_with_a_checker_that_returns_a_bool_of_numpy():
    import numpy as np

    for found in (np.True_, np.False_):
        verdict = check_output(Printer("1"), "", [("", "1")], compare=lambda *_, found=found: found)
        assert verdict.tests == (bool(found),)
    with pytest.raises(InvalidArgumentError, match="`compare` failed"):
        check_output(Printer("1"), "", [("", "1")], compare=lambda *_: np.array([1, 0]))


# Arguments and failures ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cases": []}, "`cases` must have at least one case, got none"),
        ({"cases": [("1", "2"), ("1",)]}, r"`cases\[1\]` must be two strings, .* got \('1',\)"),
        ({"cases": ["12"]}, r"`cases\[0\]` must be two strings, .* got '12'"),
        ({"cases": [(["1", "2"], "3")]}, r"`cases\[0\]` must be two strings"),
        ({"compare": "words"}, "`compare` must be 'whitespace', 'exact', 'float' or 'lines'"),
        ({"compare": None}, "`compare` must be 'whitespace'"),
        ({"program": b"1"}, "`program` must be of type str"),
        ({"limits": {"seconds": 1}}, "`limits` must be of type Limits"),
    ],
)
def test_check_output_rejects_an_invalid_task(changed, message):
    with pytest.raises(InvalidArgumentError, match=message):
        check_output(Printer(""), **{"program": ADD, "cases": CASES} | changed)


def test_check_output_accepts_the_columns_of_a_data_set(shared):
    inputs, outputs = zip(*CASES, strict=True)
    assert check_output(shared, ADD, zip(inputs, outputs, strict=True)).passed == 3
    assert check_output(shared, ADD, [list(case) for case in CASES]).passed == 3


def test_check_output_raises_if_the_sandbox_fails(level):
    from guerdon import open_sandbox

    with open_sandbox(level, workers=1) as sandbox:
        pass
    with pytest.raises(SandboxError, match="closed"):
        check_output(sandbox, ADD, CASES)


def test_check_output_async_checks_concurrently(shared):
    async def both():
        programs = [ADD, "def (", "print(3)"]
        return await asyncio.gather(*(check_output_async(shared, p, CASES) for p in programs))

    assert [verdict.passed for verdict in asyncio.run(both())] == [3, 0, 1]


async def test_check_output_async_ends_the_program_if_it_is_cancelled(
    shared, meeting, until, alive, anyio_backend
):
    if shared.level != "process":
        pytest.skip("a program at this level can't write its id")
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(check_output_async, shared, meeting.program(), CASES)
            pid = await anyio.to_thread.run_sync(meeting.pid)
            group.cancel_scope.cancel()
    assert os.getpid() != pid
    until(lambda: not alive(pid))


# What programs of contests do ---------------------------------------------------------------------

DEEP = """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size({size})
def depth(n): return n and 1 + depth(n - 1)
thread = threading.Thread(target=lambda: print(depth(10**5)))
thread.start()
thread.join()
"""
RAISED = "import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, {})\n"
LONG = "1" + "0" * 9999

PROGRAMS = {
    "unlimited stack": (RAISED.format("(-1, -1)") + "print(5)", "", "5"),
    "large stack": (RAISED.format("(2**27, -1)") + "print(5)", "", "5"),
    "list of limits": (RAISED.format("[2**28, resource.RLIM_INFINITY]") + "print(5)", "", "5"),
    "deep recursion in C": (
        RAISED.format("(-1, -1)") + "import functools\nsys.setrecursionlimit(10**6)\n"
        "@functools.lru_cache(None)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(5 * 10**4))",
        "",
        "50000",
    ),
    **{f"thread of 2**{k}": (DEEP.format(size=2**k), "", "100000") for k in range(26, 31)},
    "stack_size of _thread": (
        "import _thread, threading\n_thread.stack_size(2**29)\n"
        "thread = threading.Thread(target=print, args=(7,))\nthread.start()\nthread.join()",
        "",
        "7",
    ),
    "long integer": ("print(10**9999)", "", LONG),
    "long input": ("print(int(input()) + 1)", LONG, LONG[:-1] + "1"),
    "long literal": (f"print({LONG} % 7)", "", str(pow(10, 9999, 7))),
    "folder of the script": (
        "import os\nos.chdir(os.path.dirname(__file__))\n"
        "print(os.getcwd() == os.path.dirname(os.path.abspath(__file__)), os.listdir())",
        "",
        "True []",
    ),
    "name of the script": (
        "import os, sys\nprint(sys.argv, os.path.basename(__file__))",
        "",
        "['<program>'] program.py",
    ),
    "builtins": ("print(__builtins__.__name__, __name__)", "", "builtins __main__"),
    "source of a class": (
        "import inspect\nclass A: pass\nprint(inspect.getsource(A))",
        "",
        "class A: pass",
    ),
    "size of the input": (
        "import io, os, sys\ndata = io.BytesIO(os.read(0, os.fstat(0).st_size))\n"
        "print(int(data.readline()))",
        "42\n",
        "42",
    ),
    "open(0)": ("print(sum(map(int, open(0).read().split())))", "1 2", "3"),
    "exit()": ("print(3)\nexit()", "", "3"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_check_output_runs_what_programs_of_contests_do(shared, name):
    program, stdin, expected = PROGRAMS[name]
    verdict = check_output(shared, program, [(stdin, expected)])
    assert (verdict.passed, verdict.failure) == (1, None)


@pytest.mark.parametrize("compare", ["whitespace", "exact", "float", "lines"])
def test_check_output_compares_long_integers(shared, compare):
    for last, passed in (("1", 1), ("2", 0)):
        cases = [("", LONG[:-1] + last)]
        verdict = check_output(shared, "print(10**9999 + 1)", cases, compare=compare)
        assert verdict.passed == passed


def test_check_output_a_stack_without_limit_ends_at_the_limit_on_memory(shared):
    program = RAISED.format("(-1, -1)") + (
        "import functools\nsys.setrecursionlimit(10**9)\n"
        "@functools.lru_cache(None)\ndef f(n): return 1 + f(n + 1)\nf(0)"
    )
    verdict = check_output(shared, program, [("", "5")])
    assert (verdict.passed, verdict.ended in ("memory", "signal")) == (0, True)
