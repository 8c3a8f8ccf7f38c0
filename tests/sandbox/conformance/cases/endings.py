"""Abuse cases: how a program ends, and what is reported about it."""

from __future__ import annotations

from tests.sandbox.conformance.case import CaseGroup
from guerdon.sandbox.protocol import Limits

_SHORT = Limits(seconds=0.5, memory_bytes=128 << 20, processes=8, files=20)

case = CaseGroup("endings")

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("os._exit(0)", ends=("ok",), exit_code=0)
def os_exit_0():
    """An exit without cleaning up is reported as such."""
    trying()
    os._exit(0)


@case("os._exit(7)", ends=("nonzero",), exit_code=7)
def os_exit_7():
    """The exit code is reported unchanged."""
    trying()
    os._exit(7)


@case("exit from a thread", ends=("nonzero",), exit_code=9)
def exit_from_a_thread():
    """A thread can end the process."""
    trying()
    threading.Thread(target=os._exit, args=(9,)).start()
    time.sleep(20)


@case("sys.exit with a message", ends=("nonzero",), exit_code=1)
def sys_exit_with_a_message():
    """A message instead of an exit code is exit code 1."""
    trying()
    sys.exit("all tests passed")


@case("segfault", ends=("signal",), exit_code=-11)
def segfault():
    """A crash is reported with its signal."""
    trying()
    ctypes.string_at(0)


@case("abort", ends=("signal",), exit_code=-6)
def abort():
    """An abort is reported with its signal."""
    trying()
    os.abort()


@case("SIGTERM to itself", ends=("signal",), exit_code=-15)
def sigterm_to_itself():
    """A signal that the program sends to itself is its own ending."""
    trying()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)


@case("SIGXCPU to itself", ends=("signal", "timeout"))
def sigxcpu_to_itself():
    """The signal of processor time isn't the sandbox's failure if the program sent it."""
    trying()
    os.kill(os.getpid(), signal.SIGXCPU)
    time.sleep(1)


@case("stack overflow", ends=("signal", "memory"))
def stack_overflow():
    """A stack overflow is the program's crash."""
    trying()
    class Large(ctypes.Structure):  # an argument that the stack has no room for
        _fields_ = [("content", ctypes.c_char * (64 << 20))]
    function = ctypes.CDLL(None).abs
    function.argtypes = [Large]
    function(Large())


@case("endless recursion", ends=("nonzero",), exit_code=1)
def endless_recursion():
    """A recursion that Python stops is an exception."""
    trying()
    def down():
        return down()
    down()


@case("MemoryError", ends=("memory",))
def memoryerror():
    """An uncaught MemoryError is reported as memory."""
    trying()
    raise MemoryError


@case("closed descriptors", ends=("nonzero",), exit_code=3)
def closed_descriptors():
    """A program that closes everything is waited for, and its ending is reported."""
    trying()
    os.closerange(0, 4096)
    time.sleep(0.1)
    os._exit(3)


@case("closed descriptors, endless", ends=("timeout",), limits=_SHORT)
def closed_descriptors_endless():
    """A program that closes everything and loops is ended at its limit."""
    trying()
    os.closerange(0, 4096)
    while True:
        pass


@case("raising atexit", ends=("ok", "nonzero"))
def raising_atexit():
    """An error at exit isn't the sandbox's failure."""
    import atexit
    trying()
    def fail():
        raise SystemExit(5)
    atexit.register(fail)
    atexit.register(lambda: 1 / 0)


@case("endless atexit", ends=("timeout",), limits=_SHORT)
def endless_atexit():
    """A program that never finishes its exit is ended."""
    import atexit
    trying()
    atexit.register(time.sleep, 60)


@case("SIGSTOP to itself", ends=("timeout",), limits=_SHORT)
def sigstop_to_itself():
    """A stopped program is ended, or can't be stopped."""
    trying()
    refused(stop=lambda: os.kill(os.getpid(), signal.SIGSTOP))


@case("bytes that aren't UTF-8", ends=("ok",), exit_code=0)
def bytes_that_aren_t_utf_8():
    """Output that is not UTF-8 is reported too."""
    trying()
    sys.stdout.buffer.write(bytes(range(256)) * 4)
    sys.stderr.buffer.write(b"\xff\xfe\0")


@case("stdin that is never read", ends=("nonzero",), exit_code=1)
def stdin_that_is_never_read():
    """Input that isn't read doesn't disturb the ending."""
    trying()
    os.close(0)
    sys.stdout.close()
    raise ValueError("closed")
