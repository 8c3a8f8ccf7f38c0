"""The table of system calls: which a locked process may make, and why.

What isn't here is refused. There are three policies: ``template``, for the process that imports a
reward function and forks the calls; ``program``, for one that runs a program; and
``function_call``, which is put on top of the first when a call begins.

Nothing here lets a process send SIGKILL, to itself either, so that a death by it is never the
code's own doing. Landlock guards the contents of files; what it doesn't look at is answered here.
"""

from __future__ import annotations

from guerdon.sandbox.locking.conditions import (
    ABSENT,
    ALLOW,
    NOTHING,
    OWN_PID,
    REFUSE,
    UNSUPPORTED,
    Call,
    Condition,
    Group,
    Policy,
    arg,
)

__all__ = ["function_call", "program", "template"]

# Landlock guards these from that version of its interface on.
GUARDS_TRUNCATION = 3
GUARDS_SIGNALS = 6

# The values are those of linux/*.h, and the same on both architectures.
SIGKILL, SIGCHLD = 9, 17
CLONE_THREAD = 0x0001_0000
CLONE_SIGNAL = 0xFF  # the bits that say which signal tells the parent of the end
CLONE_REFUSED = (
    0x0000_1000,  # PIDFD
    0x0000_2000,  # PTRACE
    0x0000_8000,  # PARENT: the signal of its end would go to the parent of the caller
    0x0002_0000,  # NEWNS
    0x0080_0000,  # UNTRACED
    0x0200_0000,  # NEWCGROUP
    0x0400_0000,  # NEWUTS
    0x0800_0000,  # NEWIPC
    0x1000_0000,  # NEWUSER
    0x2000_0000,  # NEWPID
    0x4000_0000,  # NEWNET
    0x8000_0000,  # IO
)
# F_DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, OFD_GETLK, OFD_SETLK, OFD_SETLKW,
# DUPFD_CLOEXEC, GETPIPE_SZ. Not SETOWN, SETSIG, NOTIFY and SETLEASE, which send signals.
FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. Not FIOASYNC, FIOSETOWN, TIOCSTI.
IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# GET_PDEATHSIG, GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, SET_NO_NEW_PRIVS,
# GET_NO_NEW_PRIVS, SET_VMA. Not SET_PDEATHSIG, SET_SECCOMP, SET_MM, SET_PTRACER, SET_DUMPABLE.
PRCTL = (2, 3, 15, 16, 21, 23, 38, 39, 0x53564D41)
PR_SET_PDEATHSIG = 1
SECCOMP_SET_MODE_FILTER = 1
RLIMIT_DATA, RLIMIT_AS = 2, 9
# MAP_TYPE is MAP_SHARED (1), MAP_PRIVATE (2) or MAP_SHARED_VALIDATE (3).
MAP_TYPE, MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_HUGETLB = 0xF, 0x20, 0x100, 0x40000
PROT_GROWSDOWN, PROT_GROWSUP = 0x0100_0000, 0x0200_0000
AF_UNIX, SOCK_STREAM, SOCK_TYPE = 1, 1, 0xF
SOL_SOCKET = 1
TIMES = (20, 21)  # SO_RCVTIMEO, SO_SNDTIMEO; what lies in buffers no limit counts
QUERY = 0xFFFF_FFFF  # personality(QUERY) changes nothing
O_ACCMODE, O_TRUNC = 0x3, 0x200

_FORKING = (
    arg(0).without(*CLONE_REFUSED),
    # Any other signal would let a child's end kill its parent.
    arg(0).masked(CLONE_SIGNAL, 0, SIGCHLD),
)

COMMON = (
    Group(
        "Memory. Executable memory too: an extension module is mapped so. Not what is shared "
        "without a file, nor what grows by itself: no limit counts either.",
        "brk madvise mremap msync munmap",
        Call(
            "mmap",
            arg(3).not_masked(MAP_TYPE | MAP_ANONYMOUS, *(MAP_ANONYMOUS | way for way in (1, 3))),
            arg(3).without(MAP_GROWSDOWN, MAP_HUGETLB),
        ),
        Call("mprotect", arg(2).without(PROT_GROWSDOWN, PROT_GROWSUP)),
    ),
    Group(
        "Reading and writing what is open.",
        "close close_range copy_file_range dup dup2 dup3 fadvise64 fdatasync "
        "flock fsync ftruncate lseek pread64 preadv preadv2 pwrite64 pwritev pwritev2 "
        "read readv sendfile write writev",
        # With a mode, it takes room on the disk that no limit on files counts.
        Call("fallocate", arg(1).equals(0)),
        Call("fcntl", arg(1).among(*FCNTL)),
        Call("ioctl", arg(1).among(*IOCTL)),
    ),
    Group(
        "Files by name: Landlock says which can be opened, made, moved and removed.",
        "link linkat mkdir mkdirat rename renameat renameat2 rmdir symlink symlinkat "
        "unlink unlinkat",
    ),
    Group(
        "Looking at files and folders. Landlock doesn't hide that a file is there.",
        "access chdir faccessat faccessat2 fchdir fstat fstatfs getcwd getdents "
        "getdents64 lstat newfstatat readlink readlinkat stat statfs statx umask",
    ),
    Group(
        "Landlock doesn't guard modes and times. What copies a file sets them on the "
        "copy, so nothing is done, and that is called a success.",
        "chmod fchmod fchmodat fchmodat2 futimesat utime utimensat utimes",
        answer=NOTHING,
    ),
    Group(
        "Nor extended attributes; what copies a file is content where there are none.",
        "fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr "
        "listxattr listxattrat llistxattr lremovexattr lsetxattr removexattr "
        "removexattrat setxattr setxattrat",
        answer=UNSUPPORTED,
    ),
    Group(
        "Time. Not timer_create, whose timers send any signal.",
        "alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday "
        "nanosleep setitimer time timerfd_create timerfd_gettime timerfd_settime times",
    ),
    Group(
        "Waiting for something.",
        "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd "
        "eventfd2 pause poll ppoll pselect6 select",
    ),
    Group(
        "Pipes, and pairs of sockets as asyncio makes one. A socket that could reach "
        "anybody else can't be made; datagrams could be sent to a name, and messages could "
        "carry descriptors.",
        "getpeername getsockname getsockopt pipe pipe2 recvfrom shutdown",
        Call("socketpair", arg(0).equals(AF_UNIX), arg(1).masked(SOCK_TYPE, SOCK_STREAM)),
        Call("sendto", arg(4).is_null()),
        Call("setsockopt", arg(1).equals(SOL_SOCKET), arg(2).among(*TIMES)),
    ),
    Group(
        "Threads and processes. None can leave its process group or session, so that what "
        "ends the group ends all.",
        "exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake "
        "getcpu gettid restart_syscall rseq sched_get_priority_max sched_get_priority_min "
        "sched_yield set_robust_list set_tid_address vfork wait4 waitid",
        Call("clone", *_FORKING),
    ),
    Group(
        "Its flags are in memory, where a filter can't look. The C library takes clone instead.",
        "clone3",
        answer=ABSENT,
    ),
    Group(
        "The same of openat2, whose place openat takes.",
        "openat2",
        answer=ABSENT,
    ),
    Group(
        "Handling signals.",
        "rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend "
        "rt_sigtimedwait sigaltstack signalfd signalfd4",
    ),
    Group(
        "Asking about itself, and itself only.",
        "capget getegid geteuid getgid getgroups getpgrp getpid getppid getrandom "
        "getresgid getresuid getrlimit getrusage getuid sysinfo uname",
        Call("getpgid", arg(0).equals(0)),
        Call("getpriority", arg(0).equals(0), arg(1).equals(0)),
        Call("getsid", arg(0).equals(0)),
        Call("personality", arg(0).equals(QUERY)),
        Call("prctl", arg(0).among(*PRCTL)),
        Call("prlimit64", arg(0).equals(0), arg(2).is_null()),
        Call("sched_getaffinity", arg(0).equals(0)),
        Call("sched_getparam", arg(0).equals(0)),
        Call("sched_getscheduler", arg(0).equals(0)),
    ),
)

TEMPLATE_ONLY = Group(
    "What begins a call: what it is given, the second filter, its memory, and that it ends with "
    "the template.",
    "recvmsg sendmsg",
    Call("prctl", arg(0).equals(PR_SET_PDEATHSIG), arg(1).is_long(SIGKILL)),
    Call("prlimit64", arg(0).equals(0), arg(1).among(RLIMIT_DATA, RLIMIT_AS)),
    Call("seccomp", arg(0).equals(SECCOMP_SET_MODE_FILTER), arg(1).is_long(0)),
)


def template(abi: int) -> Policy:
    """What the process may do that imports a reward function and forks its calls.

    Example:
        >>> from guerdon.sandbox.locking.rules import template
        >>> template(7).name
        'template'

    Args:
        abi: The version of Landlock's interface that is there; it decides what has to be done here.
    """
    return Policy("template", (*COMMON, *_opening(abi), _signals(abi), TEMPLATE_ONLY))


def program(abi: int) -> Policy:
    """What a process may do that runs a program.

    Args:
        abi: As for `template`.
    """
    return Policy("program", (*COMMON, *_opening(abi), _signals(abi)))


def function_call() -> Policy:
    """What a call may no more do than its template.

    It adds to the filter that is there already, so it names only what is refused and is short: it
    is loaded at each call.
    """
    to_itself = arg(0).equals(OWN_PID)
    return Policy(
        "function_call",
        (
            Group("No new process.", "fork vfork", answer=REFUSE),
            Group("A new thread is none.", Call("clone", arg(0).having(CLONE_THREAD))),
            Group(
                "No signal to another: the template and it are in one group.",
                *(Call(name, to_itself) for name in ("kill", "tgkill", "tkill")),
            ),
            Group("Its limits and filters stay.", "seccomp", answer=REFUSE),
            Group("Nor is it given descriptors.", "recvmsg sendmsg", answer=REFUSE),
            Group("And may be read.", Call("prlimit64", arg(2).is_null())),
            Group(
                "It ends with its template.",
                Call("prctl", arg(0).is_not(PR_SET_PDEATHSIG)),
            ),
        ),
        otherwise=ALLOW,
        newer=ALLOW,
        native_only=False,
    )


def _opening(abi: int) -> tuple[Group, ...]:
    if abi >= GUARDS_TRUNCATION:
        return (Group("Landlock guards these.", "creat open openat truncate"),)

    def writing(place: int) -> Condition:
        # Of the four ways to open, 0 reads and 3 neither reads nor writes: yet both truncate.
        return arg(place).not_masked(O_TRUNC | O_ACCMODE, O_TRUNC, O_TRUNC | O_ACCMODE)

    return (
        Group(
            "This Landlock guards what is opened for writing, not what is emptied.",
            "creat",
            Call("open", writing(1)),
            Call("openat", writing(2)),
        ),
    )


def _signals(abi: int) -> Group:
    places = {"kill": 1, "tgkill": 2, "tkill": 1}
    if abi >= GUARDS_SIGNALS:
        return Group(
            "Signals, which Landlock keeps inside.",
            *(Call(name, arg(place).is_not(SIGKILL)) for name, place in places.items()),
        )
    return Group(
        "Signals, to itself: this Landlock doesn't keep them inside.",
        *(
            Call(name, arg(0).equals(OWN_PID), arg(place).is_not(SIGKILL))
            for name, place in places.items()
        ),
    )
