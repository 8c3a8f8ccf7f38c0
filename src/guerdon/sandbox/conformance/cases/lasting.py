"""Abuse cases: what would go on for ever, or say too much. They belong to the resources."""

from __future__ import annotations

from functools import partial

from guerdon.sandbox.conformance.case import CaseGroup
from guerdon.sandbox.protocol import Limits

__all__ = ["LASTING"]

_SHORT = Limits(seconds=0.4, memory_bytes=128 << 20, processes=8, files=20)

case = CaseGroup("resources")

endless = partial(case, limits=_SHORT, ends=("timeout",))

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@endless("endless loop")
def endless_loop():
    """Python that never ends is ended."""
    trying()
    while True:
        pass


@endless("endless loop in C")
def endless_loop_in_c():
    """C that never looks at signals is ended."""
    import re
    trying()
    re.match("(a+)+$", "a" * 64 + "b")


@endless("sleeping")
def sleeping():
    """Time counts, not only work."""
    trying()
    while True:
        time.sleep(60)


@endless("ignored signals")
def ignored_signals():
    """A program that hears no signal is ended."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    trying()
    while True:
        pass


@endless(
    "ignored signals, processor time",
    limits=Limits(seconds=3, cpu_seconds=0.5, memory_bytes=128 << 20, processes=8, files=20),
)
def ignored_signals_processor_time():
    """The signal that tells that processor time is up can't be shrugged off."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU})
    trying()
    while time.process_time() < 2:
        pass
    broken("two seconds of processor time were had, of half a one")


@endless(
    "processor time of many",
    limits=Limits(seconds=3, cpu_seconds=0.5, memory_bytes=128 << 20, processes=8, files=20),
)
def processor_time_of_many():
    """Processor time is counted over all processes."""
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


@endless("a thread that stays")
def a_thread_that_stays():
    """A program isn't over while a thread of it runs, and is ended."""
    def stay():
        while True:
            time.sleep(60)
    trying()
    threading.Thread(target=stay).start()


@case("huge stdout", ends=("output_limit",))
def huge_stdout():
    """What is printed is cut at the limit."""
    trying()
    for _ in range(64):
        sys.stdout.write("1" * (1 << 20))
    sys.stdout.flush()


@case("huge stderr", ends=("output_limit",))
def huge_stderr():
    """The other stream is cut as well."""
    trying()
    for _ in range(64):
        sys.stderr.write("1" * (1 << 20))
    sys.stderr.flush()


@case("huge stdout of a child", ends=("output_limit", "ok", "timeout"))
def huge_stdout_of_a_child():
    """What a child prints when its parent has ended is cut, or the child is."""
    trying()
    if not os.fork():
        for _ in range(64):
            os.write(1, b"1" * (1 << 20))
    os._exit(0)


@case("a daemon that outlives", ends=("ok", "timeout"), limits=_SHORT)
def a_daemon_that_outlives():
    """Nothing goes on when the call is over."""
    trying()
    if not os.fork():
        for leave in (os.setsid, lambda: os.setpgid(0, 0)):
            try:
                leave()
            except OSError as error:
                answer = errno_name(error)
        if not os.fork():
            for descriptor in range(3):
                os.close(descriptor)
            time.sleep(20)
    os._exit(0)


@case("a daemon that holds stdout", ends=("ok", "timeout"), limits=_SHORT)
def a_daemon_that_holds_stdout():
    """The call is over when its program is, whoever holds the stream."""
    trying()
    if not os.fork():
        time.sleep(20)
    os._exit(0)


@case("a stopped child", ends=("ok", "timeout"), limits=_SHORT)
def a_stopped_child():
    """What stands still is ended as well."""
    trying()
    child = os.fork()
    if not child:
        try:
            os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            time.sleep(20)
    os._exit(0)


@case("shared memory that outlives")
def shared_memory_that_outlives():
    """No memory lies around when the call is over."""
    def make():
        made = call("shmget", 0, 4096, 0o1600)
        if own("ipc"):
            raise PermissionError(errno.EPERM, "of its own")
        return made
    refused(make=make)


LASTING = tuple(case.cases)
