"""Abuse cases: how a program ends, and what is told of it."""

from __future__ import annotations

from functools import partial

from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.protocol import Limits

__all__ = ["ENDINGS"]

_SHORT = Limits(seconds=0.5, memory_bytes=128 << 20, processes=8, files=20)

_case = partial(Case, group="endings")

ENDINGS: tuple[Case, ...] = (
    _case(
        name="os._exit(0)",
        proves="an end without farewell is an end, and no more than that",
        ends=("ok",),
        exit_code=0,
        program="""
        trying()
        os._exit(0)
        """,
    ),
    _case(
        name="os._exit(7)",
        proves="the exit code is told as it was",
        ends=("nonzero",),
        exit_code=7,
        program="""
        trying()
        os._exit(7)
        """,
    ),
    _case(
        name="exit from a thread",
        proves="a thread that ends the process ends it",
        ends=("nonzero",),
        exit_code=9,
        program="""
        trying()
        threading.Thread(target=os._exit, args=(9,)).start()
        time.sleep(20)
        """,
    ),
    _case(
        name="sys.exit with words",
        proves="words instead of an exit code are an error",
        ends=("nonzero",),
        exit_code=1,
        program="""
        trying()
        sys.exit("all tests passed")
        """,
    ),
    _case(
        name="segfault",
        proves="a crash is told with its signal",
        ends=("signal",),
        exit_code=-11,
        program="""
        trying()
        ctypes.string_at(0)
        """,
    ),
    _case(
        name="abort",
        proves="an abort is told with its signal",
        ends=("signal",),
        exit_code=-6,
        program="""
        trying()
        os.abort()
        """,
    ),
    _case(
        name="SIGTERM to itself",
        proves="a signal that stopping comes by is the program's, where it sent it",
        ends=("signal",),
        exit_code=-15,
        program="""
        trying()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        """,
    ),
    _case(
        name="SIGXCPU to itself",
        proves="the signal of processor time, sent by hand, isn't the sandbox's failure",
        ends=("signal", "timeout"),
        program="""
        trying()
        os.kill(os.getpid(), signal.SIGXCPU)
        time.sleep(1)
        """,
    ),
    _case(
        name="stack overflow",
        proves="what runs over the stack is the program's crash",
        ends=("signal", "memory"),
        program="""
        trying()
        class Large(ctypes.Structure):  # an argument that the stack has no room for
            _fields_ = [("content", ctypes.c_char * (64 << 20))]
        function = ctypes.CDLL(None).abs
        function.argtypes = [Large]
        function(Large())
        """,
    ),
    _case(
        name="endless recursion",
        proves="a recursion that Python stops is an exception",
        ends=("nonzero",),
        exit_code=1,
        program="""
        trying()
        def down():
            return down()
        down()
        """,
    ),
    _case(
        name="MemoryError",
        proves="an uncaught MemoryError is told as memory",
        ends=("memory",),
        program="""
        trying()
        raise MemoryError
        """,
    ),
    _case(
        name="closed descriptors",
        proves="a program that closes all it has is waited for, and told as it ended",
        ends=("nonzero",),
        exit_code=3,
        program="""
        trying()
        os.closerange(0, 4096)
        time.sleep(0.1)
        os._exit(3)
        """,
    ),
    _case(
        name="closed descriptors, endless",
        proves="a program that nothing is heard of any more is ended at its time",
        ends=("timeout",),
        limits=_SHORT,
        program="""
        trying()
        os.closerange(0, 4096)
        while True:
            pass
        """,
    ),
    _case(
        name="raising atexit",
        proves="what goes wrong in leaving isn't the sandbox's failure",
        ends=("ok", "nonzero"),
        program="""
        import atexit
        trying()
        def fail():
            raise SystemExit(5)
        atexit.register(fail)
        atexit.register(lambda: 1 / 0)
        """,
    ),
    _case(
        name="endless atexit",
        proves="who never leaves is ended",
        ends=("timeout",),
        limits=_SHORT,
        program="""
        import atexit
        trying()
        atexit.register(time.sleep, 60)
        """,
    ),
    _case(
        name="SIGSTOP to itself",
        proves="who stands still is ended, or can't",
        ends=("timeout",),
        limits=_SHORT,
        program="""
        trying()
        refused(stop=lambda: os.kill(os.getpid(), signal.SIGSTOP))
        """,
    ),
    _case(
        name="bytes that are no text",
        proves="what isn't UTF-8 is told all the same",
        ends=("ok",),
        exit_code=0,
        program="""
        trying()
        sys.stdout.buffer.write(bytes(range(256)) * 4)
        sys.stderr.buffer.write(b"\\xff\\xfe\\0")
        """,
    ),
    _case(
        name="stdin that is never read",
        proves="what isn't read doesn't stand in the way",
        ends=("nonzero",),
        exit_code=1,
        program="""
        trying()
        os.close(0)
        sys.stdout.close()
        raise ValueError("closed")
        """,
    ),
)
