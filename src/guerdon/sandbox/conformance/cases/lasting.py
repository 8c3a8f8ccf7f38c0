"""Abuse cases: what would go on for ever, or say too much. They belong to the resources."""

from __future__ import annotations

from functools import partial

from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.protocol import Limits

__all__ = ["LASTING"]

_SHORT = Limits(seconds=0.4, memory_bytes=128 << 20, processes=8, files=20)

_case = partial(Case, group="resources")
_endless = partial(_case, limits=_SHORT, ends=("timeout",))

LASTING: tuple[Case, ...] = (
    _endless(
        name="endless loop",
        proves="Python that never ends is ended",
        program="""
        trying()
        while True:
            pass
        """,
    ),
    _endless(
        name="endless loop in C",
        proves="C that never looks at signals is ended",
        program="""
        import re
        trying()
        re.match("(a+)+$", "a" * 64 + "b")
        """,
    ),
    _endless(
        name="sleeping",
        proves="time counts, not only work",
        program="""
        trying()
        while True:
            time.sleep(60)
        """,
    ),
    _endless(
        name="ignored signals",
        proves="a program that hears no signal is ended",
        program="""
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        trying()
        while True:
            pass
        """,
    ),
    _endless(
        name="ignored signals, processor time",
        proves="the signal that tells that processor time is up can't be shrugged off",
        limits=Limits(seconds=3, cpu_seconds=0.5, memory_bytes=128 << 20, processes=8, files=20),
        program="""
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU})
        trying()
        while time.process_time() < 2:
            pass
        broken("two seconds of processor time were had, of half a one")
        """,
    ),
    _endless(
        name="processor time of many",
        proves="processor time is counted over all processes",
        limits=Limits(seconds=3, cpu_seconds=0.5, memory_bytes=128 << 20, processes=8, files=20),
        program="""
        trying()
        children = []
        for _ in range(4):
            child = os.fork()
            if not child:
                while time.process_time() < 0.45:
                    pass
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        broken("1.8 seconds of processor time were had, of half a one")
        """,
    ),
    _endless(
        name="a thread that stays",
        proves="a program isn't over while a thread of it runs, and is ended",
        program="""
        def stay():
            while True:
                time.sleep(60)
        trying()
        threading.Thread(target=stay).start()
        """,
    ),
    _case(
        name="huge stdout",
        proves="what is printed is cut at the limit",
        ends=("output_limit",),
        program="""
        trying()
        for _ in range(64):
            sys.stdout.write("1" * (1 << 20))
        sys.stdout.flush()
        """,
    ),
    _case(
        name="huge stderr",
        proves="the other stream is cut as well",
        ends=("output_limit",),
        program="""
        trying()
        for _ in range(64):
            sys.stderr.write("1" * (1 << 20))
        sys.stderr.flush()
        """,
    ),
    _case(
        name="huge stdout of a child",
        proves="what a child prints when its parent has ended is cut, or the child is",
        ends=("output_limit", "ok", "timeout"),
        program="""
        trying()
        if not os.fork():
            for _ in range(64):
                os.write(1, b"1" * (1 << 20))
        os._exit(0)
        """,
    ),
    _case(
        name="a daemon that outlives",
        proves="nothing goes on when the call is over",
        ends=("ok", "timeout"),
        limits=_SHORT,
        program="""
        trying()
        if not os.fork():
            for leave in (os.setsid, lambda: os.setpgid(0, 0)):
                try:
                    leave()
                except OSError as error:
                    told = said(error)
            if not os.fork():
                for descriptor in range(3):
                    os.close(descriptor)
                time.sleep(20)
        os._exit(0)
        """,
    ),
    _case(
        name="a daemon that holds stdout",
        proves="the call is over when its program is, whoever holds the stream",
        ends=("ok", "timeout"),
        limits=_SHORT,
        program="""
        trying()
        if not os.fork():
            time.sleep(20)
        os._exit(0)
        """,
    ),
    _case(
        name="a stopped child",
        proves="what stands still is ended as well",
        ends=("ok", "timeout"),
        limits=_SHORT,
        program="""
        trying()
        child = os.fork()
        if not child:
            try:
                os.kill(os.getpid(), signal.SIGSTOP)
            finally:
                time.sleep(20)
        os._exit(0)
        """,
    ),
    _case(
        name="shared memory that outlives",
        proves="no memory lies around when the call is over",
        program="""
        def make():
            made = call("shmget", 0, 4096, 0o1600)
            if own("ipc"):
                raise PermissionError(errno.EPERM, "of its own")
            return made
        refused(make=make)
        """,
    ),
)
