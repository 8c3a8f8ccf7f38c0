"""Abuse cases: other processes, and the program's own end."""

from __future__ import annotations

from functools import partial

from tests.sandbox.conformance.case import CaseGroup
from guerdon.sandbox.protocol import Limits

case = CaseGroup("processes")

#: A program that kills itself isn't a failure of the sandbox.
suicide = partial(
    case,
    proves="a program's own end isn't taken for a failure of the sandbox",
    ends=("signal", "nonzero", "timeout"),
    limits=Limits(seconds=4, cpu_seconds=2, memory_bytes=128 << 20, processes=8, files=20),
)

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("listing processes")
def listing_processes():
    """No other process is visible in /proc."""
    def listed():
        seen = os.listdir("/proc")
        if str(host["sleeper"]) not in seen and str(host["pid"]) not in seen:
            denied("a list of its own")
        return seen
    refused(
        list=listed,
        status=lambda: read(f"/proc/{host['sleeper']}/status"),
        stat=lambda: read(f"/proc/{host['pid']}/stat"),
    )


@case("environment of others")
def environment_of_others():
    """Tokens in another process's environment stay unread."""
    refused(**each(lambda pid: read(f"/proc/{pid}/environ"), others()))


@case("command lines of others")
def command_lines_of_others():
    """The programs that run, and their arguments, stay unread."""
    refused(**each(lambda pid: read(f"/proc/{pid}/cmdline"), others()))


@case("memory of others through /proc")
def memory_of_others_through_proc():
    """Another process's memory is neither read nor mapped out."""
    refused(**each(read, {
        f"{part} of {who}": f"/proc/{host[who]}/{part}"
        for who in ("sleeper", "pid") for part in ("mem", "maps", "smaps", "syscall", "stack")
    }))


@case("process_vm_readv")
def process_vm_readv():
    """Another process's memory is neither read nor written by a call."""
    here, there = vectors()
    refused(
        sleeper=lambda: call("process_vm_readv", host["sleeper"], here, 1, there, 1, 0),
        host=lambda: call("process_vm_readv", host["pid"], here, 1, there, 1, 0),
        write_sleeper=lambda: call("process_vm_writev", host["sleeper"], here, 1, there, 1, 0),
        write_host=lambda: call("process_vm_writev", host["pid"], here, 1, there, 1, 0),
    )


@case("ptrace")
def ptrace():
    """No other process is traced."""
    SEIZE, DETACH = 0x4206, 17
    def seize(pid):
        call("ptrace", SEIZE, pid, 0, 0)
        call("ptrace", DETACH, pid, 0, 0)
    refused(sleeper=lambda: seize(host["sleeper"]), host=lambda: seize(host["pid"]))


@case("pidfd_getfd")
def pidfd_getfd():
    """No descriptor is taken out of another process."""
    refused(**each(lambda pid: call("pidfd_getfd", call("pidfd_open", pid, 0), 0, 0), others()))


@case("comparing and advising others")
def comparing_and_advising_others():
    """The rare calls on other processes neither read nor change anything."""
    advice, COLD = (ctypes.c_long * 2)(4096, 4096), 20
    sleeper = host["sleeper"]
    refused(
        compare=lambda: call("kcmp", os.getpid(), sleeper, 0, 0, 0),
        advise=lambda: call("process_madvise", call("pidfd_open", sleeper, 0), advice, 1, COLD, 0),
    )


@case("killing the parent")
def killing_the_parent():
    """The supervisor of the program isn't signalled."""
    pid = os.getppid()
    if pid <= 1:
        passed("the parent is the first of its own processes")
        sys.exit()
    refused(**signals(pid))


@case("killing the host")
def killing_the_host():
    """The trainer and its other processes aren't signalled."""
    sleeper = host["sleeper"]
    refused(
        **signals(host["pid"]),
        **{f"{name} sleeper": attempt for name, attempt in signals(sleeper).items()},
        group=lambda: os.killpg(host["group"], 0),
        group_sleeper=lambda: os.killpg(sleeper, 0),
    )


@case("killing everything")
def killing_everything():
    """kill(-1) reaches no process of the host."""
    # The kernel reports success if there was any process, even if it refused for each. So the
    # signal is one that is ignored by default, and the host watches whether it arrives.
    try:
        os.kill(-1, signal.SIGURG)
    except OSError as error:
        passed(name_of(error))
    else:
        passed("sent; the host watches whether it arrives")


@case("killing the group")
def killing_the_group():
    """The group of the supervisor isn't signalled."""
    def group():
        theirs = os.getpgid(os.getppid()) if os.getppid() > 1 else 0
        if theirs in (0, os.getpgid(0)):
            denied("a group of its own")
        os.killpg(theirs, 0)
    refused(group=group)


@case("renice")
def renice():
    """The host isn't slowed down or pinned."""
    sleeper, process = host["sleeper"], os.PRIO_PROCESS
    refused(
        sleeper=lambda: os.setpriority(process, sleeper, 1),
        parent=lambda: os.setpriority(process, parent(), os.getpriority(process, parent())),
        io=lambda: call("ioprio_set", 1, sleeper, 2 << 13 | 4),
        pin=lambda: os.sched_setaffinity(sleeper, {0}),
        batch=lambda: os.sched_setscheduler(sleeper, os.SCHED_BATCH, os.sched_param(0)),
    )


@case("prlimit on the parent")
def prlimit_on_the_parent():
    """The limits of other processes are neither read nor set, and its own aren't raised."""
    def again(pid):
        limit = resource.prlimit(pid, resource.RLIMIT_CORE)
        resource.prlimit(pid, resource.RLIMIT_CORE, limit)
    def raise_own():
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        kind = resource.RLIMIT_CPU
        if hard == resource.RLIM_INFINITY:
            kind = resource.RLIMIT_NOFILE
            soft, hard = resource.getrlimit(kind)
        try:
            resource.setrlimit(kind, (soft, hard + 1))
        except ValueError as error:
            denied(str(error))
    refused(**each(again, others()), own=raise_own)


@case("signals by a descriptor")
def signals_by_a_descriptor():
    """The parent isn't signalled when a pipe has something to read."""
    import fcntl
    reader, _ = os.pipe()
    F_SETOWN_EX = 15
    refused(
        owner=lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, parent()),
        owner_ex=lambda: fcntl.fcntl(reader, F_SETOWN_EX, bytes((ctypes.c_int * 2)(1, parent()))),
        host=lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, host["pid"]),
    )


@suicide("SIGKILL by kill")
def sigkill_by_kill():
    me = os.getpid()
    information = (ctypes.c_int * 32)(9, 0, -1)
    survived(
        kill=lambda: os.kill(me, 9),
        tkill=lambda: call("tkill", me, 9),
        tgkill=lambda: call("tgkill", me, me, 9),
        raised=lambda: signal.raise_signal(9),
        queue=lambda: call("rt_sigqueueinfo", me, 9, information),
        thread_queue=lambda: call("rt_tgsigqueueinfo", me, me, 9, information),
        pidfd=lambda: call("pidfd_send_signal", call("pidfd_open", me, 0), 9, 0, 0),
        # The kernel reads 32 bits of either number; a filter that reads 64 is fooled.
        high_pid=lambda: call("kill", me | 1 << 40, 9),
        high_signal=lambda: call("kill", me, 9 | 1 << 40),
        thread=lambda: call("tgkill", me, threading.get_native_id(), 9 | 1 << 32),
    )


@suicide("SIGKILL by group")
def sigkill_by_group():
    if os.getpgid(0) in (host["group"], 0):
        failed("the host is in the same group")
    survived(group=lambda: os.kill(0, 9), named=lambda: os.killpg(os.getpgid(0), 9))


@suicide("SIGKILL from a child")
def sigkill_from_a_child():
    me = os.getpid()
    survived(child=lambda: os.waitpid(in_child(lambda: os.kill(me, 9)), 0))


@suicide("SIGKILL by a descriptor")
def sigkill_by_a_descriptor():
    import fcntl
    F_SETSIG, FIOASYNC, FIOSETOWN = 10, 0x5452, 0x8901
    def by_pipe():
        reader, writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(reader, F_SETSIG, 9)
        fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
        os.write(writer, b"1")
    def by_socket():
        mine, other = socket.socketpair()
        fcntl.ioctl(mine, FIOSETOWN, bytes(ctypes.c_int(os.getpid())))
        fcntl.fcntl(mine, F_SETSIG, 9)
        fcntl.ioctl(mine, FIOASYNC, bytes(ctypes.c_int(1)))
        other.send(b"1")
    def by_lease():
        with open("leased", "w") as file:
            fcntl.fcntl(file, F_SETSIG, 9)
            fcntl.fcntl(file, 1024, fcntl.F_WRLCK)  # F_SETLEASE
            os.open("leased", os.O_RDONLY | os.O_NONBLOCK)
    def by_folder():
        here = os.open(".", os.O_RDONLY)
        fcntl.fcntl(here, F_SETSIG, 9)
        fcntl.fcntl(here, 1026, 0x4)  # F_NOTIFY, of files that are made
        open("noticed", "w").close()
    survived(pipe=by_pipe, socket=by_socket, lease=by_lease, folder=by_folder)


@suicide("SIGKILL by a timer")
def sigkill_by_a_timer():
    event = (ctypes.c_int * 16)(0, 0, 9, 0)  # SIGEV_SIGNAL, SIGKILL
    timer = ctypes.c_int()
    soon = (ctypes.c_long * 4)(0, 0, 0, 1000)
    def ring():
        call("timer_create", 1, event, ctypes.byref(timer))
        call("timer_settime", timer.value, 0, soon, 0)
        time.sleep(0.2)
    survived(ring=ring)


@suicide("SIGKILL by a child's end")
def sigkill_by_a_child_s_end():
    frame = (ctypes.c_ulong * 11)(0, 0, 0, 0, 9)
    def end(child):
        end_clone(child)
        time.sleep(0.2)
    survived(
        clone=lambda: end(call("clone", 9, 0, 0, 0, 0)),
        high=lambda: end(call("clone", 9 | 1 << 40, 0, 0, 0, 0)),
        clone3=lambda: end(call("clone3", frame, 88)),
    )


@case("a sibling for the parent")
def a_sibling_for_the_parent():
    """No child is made under the parent, which its end would signal."""
    CLONE_PARENT, SIGWINCH = 0x8000, 28  # a signal that is ignored by default
    frame = (ctypes.c_ulong * 11)(CLONE_PARENT)
    refused(
        "EINVAL",
        ended=lambda: end_clone(call("clone", CLONE_PARENT | 17, 0, 0, 0, 0)),
        other=lambda: end_clone(call("clone", CLONE_PARENT | SIGWINCH, 0, 0, 0, 0)),
        clone3=lambda: end_clone(call("clone3", frame, 88)),
    )


@suicide("SIGKILL by processor time")
def sigkill_by_processor_time():
    def lower():
        # A hard limit that equals the soft one is the kernel's SIGKILL.
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
        except ValueError as error:
            denied(str(error))
        while time.process_time() < 1.5:
            pass
    survived(lower=lower)


@suicide("SIGKILL by a message queue")
def sigkill_by_a_message_queue():
    event = (ctypes.c_int * 16)(0, 0, 9, 0)
    def notify():
        queue = call("mq_open", b"guerdon", os.O_CREAT | os.O_RDWR, 0o600, 0)
        call("mq_unlink", b"guerdon")
        call("mq_notify", queue, event)
        call("mq_timedsend", queue, b"1", 1, 0, 0)
    survived(notify=notify)
