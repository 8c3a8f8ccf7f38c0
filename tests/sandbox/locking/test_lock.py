"""What a locked process can and can't do: as root, as an ordinary user, in a container."""

from __future__ import annotations

from typing import Any

import pytest

ATTACKS = {
    "passwd": "open('/etc/passwd')",
    "shadow": "open('/etc/shadow')",
    "home": "os.listdir('/root')",
    "root": "os.listdir('/')",
    "processes": "os.listdir('/proc')",
    "own-process": "open('/proc/self/environ')",
    "environ-of-parent": "open(f'/proc/{supervisor}/environ')",
    "memory-of-parent": "open(f'/proc/{supervisor}/mem', 'rb')",
    "root-of-parent": "os.listdir(f'/proc/{supervisor}/root')",
    "core-pattern": "open('/proc/sys/kernel/core_pattern', 'r+')",
    "shm": "open('/dev/shm/x', 'w')",
    "tmp": "open('/tmp/guerdon-test', 'w')",
    "interpreter": "open(os.__file__, 'a')",
    "empty-interpreter": "os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
    "truncate-interpreter": "os.truncate(os.__file__, os.stat(os.__file__).st_size)",
    "unlink-interpreter": "os.unlink(os.path.dirname(os.__file__) + '/this.py')",
    "symbolic-link": "os.symlink('/etc/passwd', 'link')",
    "hard-link": "os.link('/etc/passwd', 'link')",
    "hard-link-of-what-can-be-read": "os.link(os.__file__, 'link')",
    "move-of-what-can-be-read": "os.rename(os.path.dirname(os.__file__) + '/this.py', 'this.py')",
    "fifo": "os.mkfifo('fifo')",
    "device": "os.mknod('device', 0o020666, os.makedev(1, 3))",
    "handle": "make(number('open_by_handle_at'), -100, 0, 0)",
    "memfd": "os.memfd_create('x')",
    "tcp": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "tcp6": "socket.socket(socket.AF_INET6, socket.SOCK_STREAM)",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "unix": "socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "alg": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "datagrams": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "io-uring": "make(number('io_uring_setup'), 1, 0)",
    "signal-parent": "os.kill(supervisor, 0)",
    "signal-init": "os.kill(1, 0)",
    "trace-parent": "make(number('ptrace'), 0x4206, supervisor, 0, 0)",
    "read-parent": "make(number('process_vm_readv'), supervisor, 0, 0, 0, 0, 0)",
    "pidfd-of-parent": "make(number('pidfd_open'), supervisor, 0)",
    "limits-of-parent": """
import resource
resource.prlimit(supervisor, resource.RLIMIT_CORE)
""",
    "priority-of-parent": "os.setpriority(os.PRIO_PROCESS, supervisor, 0)",
    "priority": "os.nice(1)",
    "affinity": "os.sched_setaffinity(0, {0})",
    "group-of-parent": "os.getpgid(supervisor)",
    "session": "os.setsid()",
    "group": "os.setpgid(0, 0)",
    "user": "os.setuid(0)",
    "namespace": "make(number('unshare'), 0x10000000)",
    "mount": "make(number('mount'), 0, 0, 0, 0, 0)",
    "chroot": "os.chroot('/')",
    "keys": "make(number('keyctl'), 0, 0)",
    "bpf": "make(number('bpf'), 0, 0, 0)",
    "perf": "make(number('perf_event_open'), 0, 0, -1, -1, 0)",
    "userfaultfd": "make(number('userfaultfd'), 0)",
    "capabilities": "privileges._set_capabilities(1 << 21)",
    "dumpable": "syscalls.prctl(4, 1)",
    "reaper": "syscalls.prctl(36, 1)",
    "exec": "os.execv('/bin/true', ['true'])",
    "foreign-owner": "os.chown(os.__file__, os.getuid(), -1)",
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("profile", ["program", "template", "function_call"])
def test_an_attack_is_refused(supervisor: Any, profile: Any, attack: str) -> None:
    told = supervisor.tries(ATTACKS[attack], profile=profile, folder=profile == "program")
    assert (told.signal, list(told.files)) == (0, [])
    assert told.refused or told.error == "SandboxError", told


@pytest.mark.parametrize("call", ["os.fork()", "os.forkpty()"])
def test_a_function_call_starts_no_process(supervisor: Any, call: str) -> None:
    assert supervisor.tries(call, profile="function_call").refused


def test_a_function_call_signals_only_itself(supervisor: Any) -> None:
    for other in ("parent", "0", "-1", "supervisor"):
        assert supervisor.tries(f"os.kill({other}, 0)", profile="function_call").refused
    told = supervisor.tries("os.kill(os.getpid(), 15)", profile="function_call")
    # The first Landlock leaves signals to the filter, and the template's knows itself alone.
    assert told.refused if supervisor.who == "old" else told.signal == 15


def test_a_function_call_keeps_its_limits(supervisor: Any) -> None:
    told = supervisor.tries(
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (1, 1))", profile="function_call"
    )
    assert told.error == "ValueError"


def test_changing_modes_and_times_does_nothing(supervisor: Any) -> None:
    told = supervisor.tries(
        """
path = os.path.dirname(os.__file__) + '/this.py'
def seen():
    state = os.stat(path)
    return state.st_mode, state.st_mtime_ns, state.st_uid
before = seen()
os.chmod(path, 0o777)
os.utime(path)
result = seen() == before
"""
    )
    assert told.result is True, told


@pytest.mark.parametrize(
    "code",
    [
        "ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 39))",
        pytest.param(
            # mov eax, 20; int 0x80; ret
            """
import mmap
code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
""",
        ),
    ],
    ids=["x32", "int80"],
)
def test_calls_of_another_architecture_end_it(supervisor: Any, code: str) -> None:
    if supervisor.here("result = os.uname().machine") != "x86_64":
        pytest.skip("x86-64 has these")
    assert supervisor.tries(code).signal == 31


def test_a_program_without_a_folder_writes_nowhere(supervisor: Any) -> None:
    for path in ("/tmp/x", "x", "/dev/shm/x"):
        assert supervisor.tries(f"open({path!r}, 'w')").refused


def test_a_program_does_not_reach_another_ones_folder(supervisor: Any) -> None:
    other = supervisor.here("result = tempfile.mkdtemp(); os.chmod(result, 0o777)")
    try:
        assert supervisor.tries(f"os.listdir({other!r})", folder=True).refused
        assert supervisor.tries(f"open({other!r} + '/x', 'w')", folder=True).refused
    finally:
        supervisor.here(f"os.rmdir({other!r})")


def test_what_is_locked_is_not_root(supervisor: Any) -> None:
    told = supervisor.tries("result = [*os.getresuid(), *os.getresgid(), *os.getgroups()]")
    assert 0 not in told.result
    assert len(set(told.result)) == 1


def test_a_capability_is_left_only_to_read_what_is_shut(supervisor: Any) -> None:
    held = supervisor.tries(
        """
header, data = privileges._CapabilityHeader(0x20080522, 0), (ctypes.c_uint32 * 6)()
ctypes.CDLL(None).capget(ctypes.byref(header), ctypes.byref(data))
result = data[0] | data[1] | data[2] | (data[3] | data[4] | data[5]) << 32
"""
    ).result
    shut, kept = supervisor.here(
        "result = bool(privileges.unreachable(plan.files.paths)), plan.keep"
    )
    assert held == (1 << kept if shut else 0)


def test_it_dies_with_what_started_it(supervisor: Any) -> None:
    told = supervisor.here(
        """
reading, writing = os.pipe()
middle = os.fork()
if not middle:
    os.close(reading)
    plan._parent = os.getpid()
    if not os.fork():
        plan.lock_program(limits)
        os.write(writing, b"locked")
        signal.pause()
    os.close(writing)
    signal.pause()
os.close(writing)
ready = os.read(reading, 6)
os.kill(middle, 9)
os.waitpid(middle, 0)
result = [ready.decode(), os.read(reading, 1).decode()]
os.close(reading)
"""
    )
    assert told == ["locked", ""]


def test_a_child_of_another_process_is_not_locked_by_the_plan(supervisor: Any) -> None:
    told = supervisor.tries("result = 1", before="plan._parent = 1")
    assert "has ended already" in told.said


def test_the_canaries_hold(supervisor: Any) -> None:
    for profile in ("program", "template", "function_call"):
        told = supervisor.here(
            f"result = [(c.name, c.held, c.detail) for c in canaries.release(plan, {profile!r})]"
        )
        assert len(told) >= 12
        assert [canary for canary in told if not canary[1]] == []


def test_canaries_tell_of_a_lock_that_does_not_hold(supervisor: Any) -> None:
    told = supervisor.here(
        """
import copy
class Open:
    def lock_program(self, limits):
        # No filter: the attacks meet the kernel alone; the harmful ones are taken out.
        os.execv = os.kill = os.setsid = lambda *_: None
result = {c.name: c.held for c in canaries.release(Open())}
"""
    )
    assert told["read /etc/passwd"] is False
    assert told["make a TCP socket"] is False
    assert told["change a file's mode"] is False
    assert told["kill itself"] is False


def test_canaries_tell_of_a_lock_that_fails(supervisor: Any) -> None:
    told = supervisor.here(
        """
class Broken:
    def lock_program(self, limits):
        raise OSError("no")
result = [(c.name, c.held, c.detail) for c in canaries.release(Broken())]
"""
    )
    assert told[0] == ["locking", False, "OSError: no"]
    assert not any(held for _, held, _ in told)


def test_nothing_is_missing_here(supervisor: Any) -> None:
    assert supervisor.here("result = lock.requirements()") == []
    facts = supervisor.here("result = plan.facts()")
    assert facts["Landlock"].startswith("interface ")
    named = facts["calls run as"]
    assert named.isdigit() if supervisor.is_root else named == "this user"


def test_a_user_is_reserved_once(supervisor: Any) -> None:
    if not supervisor.is_root:
        pytest.skip("it stays the user that it is")
    told = supervisor.here(
        """
candidates = privileges._candidates
with contextlib.closing(privileges.ReservedUser()) as other:
    uid = other.uid
    privileges._candidates = lambda: iter([uid])
    try:
        privileges.ReservedUser()
    except Exception as error:
        taken = str(error)
with contextlib.closing(privileges.ReservedUser()) as again:
    result = uid != plan.uid, again.uid == uid, taken
privileges._candidates = candidates
"""
    )
    assert told[:2] == [True, True]
    assert "number is taken, or isn't one of this user namespace" in told[2]


def test_no_users_number_is_taken_that_a_process_has(supervisor: Any) -> None:
    told = supervisor.here(
        """
candidates = privileges._candidates
privileges._candidates = lambda: iter([os.geteuid()])
try:
    privileges.ReservedUser()
except Exception as error:
    result = str(error)
privileges._candidates = candidates
"""
    )
    assert "is taken" in told


def test_a_template_that_answers_itself_is_locked_as_a_call(supervisor: Any) -> None:
    told = supervisor.tries(
        """
plan.lock_function_call(limits)
result = []
for attack in (os.fork, lambda: os.kill(parent, 0), lambda: syscalls.prctl(1, 9)):
    try:
        attack()
    except PermissionError:
        result.append("refused")
""",
        profile="template",
    )
    assert told.result == ["refused"] * 3


def test_a_crash_is_a_signal_of_its_own(supervisor: Any) -> None:
    assert supervisor.tries("ctypes.string_at(0)").signal == 11
    assert supervisor.tries("ctypes.string_at(0)", profile="function_call").signal == 11


def test_the_template_may_limit_the_memory_of_a_call(supervisor: Any) -> None:
    told = supervisor.tries(
        """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
result = resource.getrlimit(resource.RLIMIT_DATA)
""",
        profile="template",
    )
    assert told.result == [1 << 30, 1 << 30]


def test_locking_leaves_no_descriptor_open(supervisor: Any) -> None:
    told = supervisor.tries(
        "result = sorted(opened() - before)",
        before="""
def opened():
    found = set()
    for at in range(64):
        try:
            os.fstat(at)
        except OSError:
            continue
        found.add(at)
    return found
before = opened()
""",
    )
    assert told.result == []
