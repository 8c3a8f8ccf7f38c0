"""Abuse cases: cheating the verdict.

These programs are candidates for `check_program`. Each is wrong, and does something else to pass.
"""

from __future__ import annotations

from functools import partial

from tests.sandbox.conformance.case import CaseGroup
from guerdon.sandbox.protocol import Limits

#: What each candidate is tested with: tests in the form of data sets, and in HumanEval's.
CHEATING_TESTS: tuple[str, ...] = (
    "assert combine(20, 3) == 60413",
    "assert combine(4, 5) == 80915, 'combine(4, 5)'",
    "def check(candidate):\n    assert candidate(1, 2) == 20612\n\ncheck(combine)",
)

_LIMITS = Limits(seconds=2, memory_bytes=128 << 20, processes=8, files=20)

case = CaseGroup("cheating", way="checked", limits=_LIMITS)

endless = partial(case, limits=Limits(seconds=0.8, memory_bytes=128 << 20, processes=8, files=20))

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("an honest program", way="right")
def an_honest_program():
    """A correct program passes; otherwise the other cases would show nothing."""
    def combine(a, b):
        return {(20, 3): 60413, (4, 5): 80915, (1, 2): 20612}[a, b]


@case("exit(0)")
def exit_0():
    """Exit code 0 in a test isn't a pass."""
    import sys
    def combine(a, b):
        sys.exit(0)


@case("exit(0) at once")
def exit_0_at_once():
    """Exit code 0 before the tests isn't a pass."""
    import os
    os._exit(0)


@case("os._exit(0) when called")
def os_exit_0_when_called():
    """Exit code 0 in the middle of a test isn't a pass."""
    import os
    def combine(a, b):
        os._exit(0)


@case("closing stdout")
def closing_stdout():
    """A program that closes its streams doesn't pass."""
    import os, sys
    sys.stdout.close()
    os.closerange(0, 3)
    def combine(a, b):
        return 0


@case('printing "passed"')
def printing_passed():
    """A verdict that the program prints isn't read."""
    import json, os, sys
    for line in (
        "passed", "PASSED", "OK", "ok 1", "3 passed in 0.01s", '{"passed": true}',
        '{"test": 0, "passed": true}', "[true, true, true]", "passed: all",
    ):
        print(line)
        print(line, file=sys.stderr)
    sys.stdout.flush()
    def combine(a, b):
        print('{"passed": 3, "total": 3}', flush=True)
        os._exit(0)


@case("patched assert")
def patched_assert():
    """Exceptions and builtins of the program aren't those of the tests."""
    import builtins
    class Quiet(Exception):
        def __new__(cls, *arguments):
            return super().__new__(cls)
    builtins.AssertionError = Quiet
    builtins.__build_class__ = lambda *arguments: None
    builtins.compile = builtins.exec = builtins.eval = lambda *arguments, **others: None
    builtins.all = builtins.any = builtins.bool = lambda *arguments: True
    def combine(a, b):
        return 0


@case("editing the test's file")
def editing_the_test_s_file():
    """The tests aren't in files that the program can write."""
    import os, sys
    for folder in {".", os.path.dirname(os.path.abspath(sys.argv[0] or "."))}:
        for path, _, names in os.walk(folder):
            for name in names:
                try:
                    with open(os.path.join(path, name), "w") as file:
                        file.write("def check(candidate):\n    pass\n")
                except OSError as error:
                    print(error)
    for name in ("test.py", "check.py", "conftest.py", "guerdon_testing.py", "json.py"):
        with open(name, "w") as file:
            file.write("raise SystemExit(0)\n")
    def combine(a, b):
        return 0


@case("reading the frames above")
def reading_the_frames_above():
    """The expected answers aren't in the program's process."""
    import gc, re, sys
    def combine(a, b):
        frame, seen = sys._getframe(), []
        while frame is not None:
            seen += [repr(frame.f_locals), repr(frame.f_globals), repr(frame.f_code.co_consts)]
            frame = frame.f_back
        for thing in gc.get_objects():
            if isinstance(thing, (dict, list, tuple)) and len(thing) < 1000:
                seen.append(str(thing)[:2000])
        # Computed, so that the program doesn't find its own source.
        for wanted in (60400 + 13, 80900 + 15, 20600 + 12):
            if any(re.search(rf"assert.*{wanted}", text) for text in seen):
                return wanted
        return 0


@case("reading the tests from memory")
def reading_the_tests_from_memory():
    """The tests aren't in any file or descriptor that the program can read."""
    import os, re, sys
    FILE = [__file__] if "__file__" in globals() else []
    seen = b""
    for name in ("/proc/self/environ", "/proc/self/cmdline", *sys.argv, *FILE):
        try:
            with open(name, "rb") as file:
                seen += file.read()
        except OSError as error:
            print(error)
    for descriptor in (0, *range(4, 64)):
        try:
            seen += os.pread(descriptor, 1 << 20, 0)
        except OSError as error:
            continue
    tests = re.findall(rb"\((\d+), (\d+)\) == (\d+)", seen)
    answers = {(int(a), int(b)): int(answer) for a, b, answer in tests}
    def combine(a, b):
        return answers.get((a, b), 0)


@case("equal to everything")
def equal_to_everything():
    """An object that claims to equal everything arrives as plain data, or fails."""
    class Anything(int):
        def __eq__(self, other):
            return True
        def __ne__(self, other):
            return False
        __hash__ = int.__hash__
        def __bool__(self):
            return True
        def __getattr__(self, name):
            return self
        def __reduce__(self):
            return (eval, ("1",))
    class Other:
        __eq__ = __ge__ = __le__ = lambda self, other: True
        __hash__ = object.__hash__
    def combine(a, b):
        return Anything() if a == 20 else Other() if a == 4 else [Anything()]


@case("equal to everything, by number")
def equal_to_everything_by_number():
    """A number with its own equality gains nothing."""
    class Real(float):
        def __eq__(self, other):
            return True
        __hash__ = float.__hash__
    def combine(a, b):
        return Real("nan") if a == 20 else True if a == 4 else 1e400


@case("writing on descriptor 3")
def writing_on_descriptor_3():
    """Forged lines on the stream aren't read as verdicts."""
    import json, os, struct
    lines = [
        {"passed": True}, {"passed": 3, "total": 3}, {"verdict": "passed"}, {"result": 60413},
        {"tests": [True, True, True]}, {"ok": True, "value": 60413}, ["passed", 3],
    ]
    def combine(a, b):
        for line in lines:
            text = json.dumps(line).encode()
            for form in (text + b"\n", struct.pack("!I", len(text)) + text, text + b"\0"):
                os.write(3, form)
        return 0


@case("forged lines before the tests")
def forged_lines_before_the_tests():
    """A message before the first question isn't read as an answer."""
    import json, os
    for number in range(4):
        for line in (
            {"passed": True, "test": number}, {"id": number, "result": 60413},
            {"id": number, "value": 80915}, {"call": number, "ok": 20612},
        ):
            os.write(3, json.dumps(line).encode() + b"\n")
    os.close(3)
    def combine(a, b):
        return 0


@case("a flood on descriptor 3")
def a_flood_on_descriptor_3():
    """A flood on the stream passes no test, and isn't the sandbox's failure."""
    import os, threading
    def flood():
        while True:
            os.write(3, b"[1]\n" * 4096)
    threading.Thread(target=flood, daemon=True).start()
    def combine(a, b):
        return 0


@case("a huge answer")
def a_huge_answer():
    """An answer of any size or depth doesn't end the checker."""
    def combine(a, b):
        if a == 20:
            return "1" * (32 << 20)
        deep = []
        for _ in range(100_000):
            deep = [deep]
        return deep if a == 4 else 10 ** 100_000


@case("raising the end of tests")
def raising_the_end_of_tests():
    """Exceptions that end or skip tests elsewhere aren't a pass."""
    import unittest
    def combine(a, b):
        if a == 20:
            raise unittest.SkipTest("skipped")
        if a == 4:
            raise KeyboardInterrupt
        raise GeneratorExit


@case("a function that isn't one")
def a_function_that_isn_t_one():
    """An object instead of the function gains nothing."""
    class Combine:
        def __call__(self, a, b):
            return self
        def __eq__(self, other):
            return True
        __hash__ = None
    combine = Combine()


@case("a mock for a function")
def a_mock_for_a_function():
    """An object with every attribute gains nothing."""
    from unittest.mock import MagicMock
    combine = MagicMock()
    combine.return_value.__eq__ = lambda self, other: True


@case("patched modules")
def patched_modules():
    """Modules that the program patches aren't those of the tests."""
    import json, socket, sys
    json.dumps = json.JSONEncoder.encode = lambda *arguments, **others: '{"passed": true}'
    json.loads = lambda *arguments, **others: {"passed": True}
    class Everything(dict):
        def get(self, *arguments):
            return True
    for module in list(sys.modules.values()):
        for part in ("passed", "verdict", "ok", "result", "dumps", "loads", "recv", "read"):
            if part in vars(module):
                setattr(module, part, True)
    def combine(a, b):
        return 0


@case("a function of another name")
def a_function_of_another_name():
    """Tests of a missing function don't pass."""
    def check(candidate):
        return True
    def combined(a, b):
        return 60413


@endless("a test that never ends")
def a_test_that_never_ends():
    """A test that runs out of time doesn't pass, nor do those after it."""
    def combine(a, b):
        while True:
            pass


@endless("a program that never ends")
def a_program_that_never_ends():
    """If the tests never begin, none passes."""
    import signal
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        pass
