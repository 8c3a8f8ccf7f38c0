"""Two programs at a time, joined by a stream, and shut off from each other else."""

import pytest

from guerdon import Limits
from guerdon.sandbox import Program

LINK = "import os, socket, sys\nlink = socket.socket(fileno=3)\n"
STREAM = "import os\ndef say(text): os.write(3, text)\ndef hear(): return os.read(3, 1000)\n"


def pair(sandbox, program, checker, **limits):
    given = (
        each if isinstance(each, Program) else Program(STREAM + each) for each in (program, checker)
    )
    return sandbox.run_pair(*given, limits=Limits(**limits))


def test_run_pair_connects_both_ways(shared):
    program, checker = pair(
        shared, "say(hear() * 2); print('a')", "say(b'xy'); print(hear()); print('b')"
    )
    assert (program.ending, checker.ending) == ("ok", "ok")
    assert checker.stdout == "b'xyxy'\nb\n"
    assert program.stdout in ("a\n", "")  # the checker may have ended it by then


def test_run_pair_gives_each_four_descriptors(shared):
    find = (
        "def closed(n):\n    try: os.fstat(n)\n    except OSError: return True\n    return False\n"
    )
    listing = find + "print([n for n in range(1024) if not closed(n)], flush=True)\n"
    program, checker = pair(shared, listing + "say(b'x')", "hear()\n" + listing)
    assert program.stdout == checker.stdout == "[0, 1, 2, 3]\n"


def test_run_pair_separates_inputs_in_one_folder(shared):
    listing = "import sys\nprint(sys.stdin.read(), sorted(os.listdir('.')), flush=True)\n"
    program, checker = shared.run_pair(
        Program(f"{STREAM}hear()\n{listing}say(b'x')", stdin=b"1", files={"f": b"one"}),
        Program(f"{STREAM}open('g', 'w')\nsay(b'x')\nhear()\n{listing}", stdin=b"2"),
    )
    assert (program.stdout, checker.stdout) == ("1 ['f', 'g']\n", "2 ['f', 'g']\n")


def test_run_pair_signals_the_end_of_one_to_the_other(shared):
    program, checker = pair(shared, "raise SystemExit(3)", "print(hear(), hear())")
    assert (program.ending, program.exit_code) == ("nonzero", 3)
    assert checker.stdout == "b'' b''\n"


def test_run_pair_reports_the_end_of_a_program_that_its_checker_has_seen(shared):
    for _ in range(60):
        program, _ = pair(shared, "raise SystemExit(3)", "hear(); os._exit(0)")
        assert (program.ending, program.exit_code) == ("nonzero", 3)


def test_run_pair_ends_with_the_checker(shared):
    program, checker = pair(shared, "while True: pass", "print('done')", seconds=60)
    assert checker.ending == "ok"
    assert program.ending == "ok"
    assert program.detail == "it was ended when its checker had ended"
    assert program.exit_code is None


def test_run_pair_keeps_the_ending_of_a_program_that_ends_first(shared):
    program, checker = pair(
        shared, "import ctypes; ctypes.string_at(0)", "hear(); import time; time.sleep(0.05)"
    )
    assert (program.ending, program.exit_code) == ("signal", -11)
    assert checker.ending == "ok"


def test_run_pair_limits_the_time_of_both(shared):
    program, checker = pair(shared, "hear()", "hear()", seconds=0.2)
    assert (program.ending, checker.ending) == ("timeout", "timeout")
    assert checker.seconds < 10


def test_run_pair_keeps_the_checker_of_a_program_without_memory(shared):
    program, checker = pair(
        shared,
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "print(hear())",
        memory_bytes=48 << 20,
    )
    assert program.ending == "memory"
    assert (checker.ending, checker.stdout) == ("ok", "b''\n")


def test_run_pair_keeps_the_checker_of_a_program_that_prints_too_much(shared):
    program, checker = pair(
        shared, "while True: print('x' * 100)", "print(hear())", output_bytes=1000
    )
    assert program.ending == "output_limit"
    assert len(program.stdout) == 1000
    assert (checker.ending, checker.stdout) == ("ok", "b''\n")


def test_run_pair_ends_with_a_checker_that_prints_too_much(shared):
    program, checker = pair(shared, "hear()", "while True: print('x' * 100)", output_bytes=1000)
    assert checker.ending == "output_limit"
    assert program.ending == "ok"


def test_run_pair_survives_a_flooded_stream(shared):
    program, checker = pair(
        shared, "while True: say(b'x' * 65536)", "print(len(os.read(3, 10)))", seconds=20
    )
    assert (checker.ending, checker.stdout) == ("ok", "10\n")
    assert program.ending in ("ok", "nonzero")


def test_run_pair_ends_an_unread_flood_in_time(shared):
    endings = pair(
        shared, "while True: say(b'x' * 65536)", "import time; time.sleep(60)", seconds=0.3
    )
    assert [each.ending for each in endings] == ["timeout", "timeout"]


def test_run_pair_does_not_buffer_the_stream(shared):
    program, checker = pair(
        shared, "for _ in range(300): say(b'x' * 65536)",
        "count = 0\nwhile part := os.read(3, 65536): count += len(part)\nprint(count)",
    )  # fmt: skip
    assert checker.stdout == f"{300 * 65536}\n"
    assert program.ending == "ok"


def test_run_pair_stream_is_a_socket(shared):
    _, checker = shared.run_pair(
        Program("import os\nwith os.fdopen(3, 'w') as out: print('line', file=out)"),
        Program("import os\nwith os.fdopen(3) as lines: print(list(lines))"),
    )
    assert checker.stdout == "['line\\n']\n"


def test_run_pair_hides_processes_from_each_other(shared):
    if shared.level != "strict":
        pytest.skip("process promises nothing of it")
    program, checker = pair(
        shared, "say(str(os.getpid()).encode()); hear()",
        "pid = int(hear())\ntry: os.kill(pid, 0); print('reached')\n"
        "except OSError as error: print(type(error).__name__)",
    )  # fmt: skip
    assert checker.stdout == "PermissionError\n"
    assert program.ending == "ok"


@pytest.mark.anyio
async def test_run_pair_async_returns_the_same(shared, anyio_backend):
    _, checker = await shared.run_pair_async(
        Program(STREAM + "say(b'x')"), Program(STREAM + "print(hear())")
    )
    assert checker.stdout == "b'x'\n"
