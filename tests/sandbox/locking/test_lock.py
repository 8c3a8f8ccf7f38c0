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
def test_strict_lock_refuses_an_attack(supervisor: Any, profile: Any, attack: str) -> None:
    outcome = supervisor.tries(ATTACKS[attack], profile=profile, folder=profile == "program")
    assert (outcome.signal, list(outcome.files)) == (0, [])
    assert outcome.refused or outcome.error == "SandboxError", outcome


@pytest.mark.parametrize("call", ["os.fork()", "os.forkpty()"])
def test_lock_function_call_refuses_processes(supervisor: Any, call: str) -> None:
    assert supervisor.tries(call, profile="function_call").refused


def test_lock_function_call_refuses_signals_to_others(supervisor: Any) -> None:
    for other in ("parent", "0", "-1", "supervisor"):
        assert supervisor.tries(f"os.kill({other}, 0)", profile="function_call").refused
    outcome = supervisor.tries("os.kill(os.getpid(), 15)", profile="function_call")
    # The first Landlock leaves signals to the filter, and the template's knows itself alone.
    assert outcome.refused if supervisor.who == "old" else outcome.signal == 15


def test_lock_function_call_refuses_new_limits(supervisor: Any) -> None:
    outcome = supervisor.tries(
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (1, 1))", profile="function_call"
    )
    assert outcome.error == "ValueError"


def test_lock_program_ignores_changes_of_modes_and_times(supervisor: Any) -> None:
    outcome = supervisor.tries(
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
    assert outcome.result is True, outcome


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
def test_lock_program_kills_on_calls_of_another_architecture(supervisor: Any, code: str) -> None:
    if supervisor.here("result = os.uname().machine") != "x86_64":
        pytest.skip("x86-64 has these")
    assert supervisor.tries(code).signal == 31


def test_lock_program_without_a_folder_refuses_writing(supervisor: Any) -> None:
    for path in ("/tmp/x", "x", "/dev/shm/x"):
        assert supervisor.tries(f"open({path!r}, 'w')").refused


def test_lock_program_refuses_the_folder_of_another(supervisor: Any) -> None:
    other = supervisor.here("result = tempfile.mkdtemp(); os.chmod(result, 0o777)")
    try:
        assert supervisor.tries(f"os.listdir({other!r})", folder=True).refused
        assert supervisor.tries(f"open({other!r} + '/x', 'w')", folder=True).refused
    finally:
        supervisor.here(f"os.rmdir({other!r})")


def test_lock_program_gives_up_root(supervisor: Any) -> None:
    outcome = supervisor.tries("result = [*os.getresuid(), *os.getresgid(), *os.getgroups()]")
    assert 0 not in outcome.result
    assert len(set(outcome.result)) == 1


def test_lock_program_keeps_a_capability_only_for_reading(supervisor: Any) -> None:
    bits = supervisor.tries(
        """
header, data = privileges._CapabilityHeader(0x20080522, 0), (ctypes.c_uint32 * 6)()
ctypes.CDLL(None).capget(ctypes.byref(header), ctypes.byref(data))
result = data[0] | data[1] | data[2] | (data[3] | data[4] | data[5]) << 32
"""
    ).result
    shut, kept = supervisor.here(
        "result = bool(privileges.unreachable(plan.files.paths)), plan.keep"
    )
    assert bits == (1 << kept if shut else 0)


def test_lock_program_ends_with_its_parent(supervisor: Any) -> None:
    outcome = supervisor.here(
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
    assert outcome == ["locked", ""]


def test_lock_program_refuses_another_parent(supervisor: Any) -> None:
    outcome = supervisor.tries("result = 1", before="plan._parent = 1")
    assert "has ended already" in outcome.traceback


def test_release_reports_that_attacks_are_refused(supervisor: Any) -> None:
    for profile in ("program", "template", "function_call"):
        outcome = supervisor.here(
            f"result = [(c.name, c.blocked, c.detail) for c in canaries.release(plan, {profile!r})]"
        )
        assert len(outcome) >= 12
        assert [canary for canary in outcome if not canary[1]] == []


def test_release_reports_attacks_that_succeed(supervisor: Any) -> None:
    outcome = supervisor.here(
        """
import copy
class Open:
    def lock_program(self, limits):
        # No filter: the attacks meet the kernel alone; the harmful ones are taken out.
        os.execv = os.kill = os.setsid = lambda *_: None
result = {c.name: c.blocked for c in canaries.release(Open())}
"""
    )
    assert outcome["read /etc/passwd"] is False
    assert outcome["make a TCP socket"] is False
    assert outcome["change a file's mode"] is False
    assert outcome["kill itself"] is False


def test_release_reports_a_lock_that_fails(supervisor: Any) -> None:
    outcome = supervisor.here(
        """
class Broken:
    def lock_program(self, limits):
        raise OSError("no")
result = [(c.name, c.blocked, c.detail) for c in canaries.release(Broken())]
"""
    )
    assert outcome[0] == ["locking", False, "OSError: no"]
    assert not any(refused for _, refused, _ in outcome)


def test_requirements_are_met_where_strict_works(supervisor: Any) -> None:
    assert supervisor.here("result = lock.requirements()") == []
    facts = supervisor.here("result = plan.facts()")
    assert facts["Landlock"].startswith("interface ")
    named = facts["calls run as"]
    assert named.isdigit() if supervisor.is_root else named == "this user"


def test_reserved_user_is_reserved_once(supervisor: Any) -> None:
    if not supervisor.is_root:
        pytest.skip("it stays the user that it is")
    outcome = supervisor.here(
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
    assert outcome[:2] == [True, True]
    assert "user ids are taken, or missing in this user namespace" in outcome[2]


def test_reserved_user_skips_users_with_processes(supervisor: Any) -> None:
    outcome = supervisor.here(
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
    assert "are taken" in outcome


def test_lock_function_call_locks_a_template(supervisor: Any) -> None:
    outcome = supervisor.tries(
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
    assert outcome.result == ["refused"] * 3


def test_strict_lock_leaves_a_crash_a_signal(supervisor: Any) -> None:
    assert supervisor.tries("ctypes.string_at(0)").signal == 11
    assert supervisor.tries("ctypes.string_at(0)", profile="function_call").signal == 11


def test_lock_template_allows_memory_limits(supervisor: Any) -> None:
    outcome = supervisor.tries(
        """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
result = resource.getrlimit(resource.RLIMIT_DATA)
""",
        profile="template",
    )
    assert outcome.result == [1 << 30, 1 << 30]


def test_lock_program_leaves_no_descriptor_open(supervisor: Any) -> None:
    outcome = supervisor.tries(
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
    assert outcome.result == []
