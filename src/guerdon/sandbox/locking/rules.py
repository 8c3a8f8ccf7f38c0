"""The table of system calls: which a locked process may make, and why.

All others are refused. There are three policies: ``template``, for the process that imports a
function and forks the calls; ``program``, for one that runs a program; and ``function_call``, which
is loaded on top of the first when a call begins.

No process can send SIGKILL, not even to itself, so that death by it is never the code's own doing.
Landlock guards the contents of files; the calls that it doesn't check are answered here.
"""

from __future__ import annotations

from guerdon.sandbox.locking.filters import (
    ABSENT,
    ALLOW,
    NOTHING,
    OWN_PID,
    REFUSE,
    SECCOMP_SET_MODE_FILTER,
    UNSUPPORTED,
    Call,
    Condition,
    Group,
    Policy,
    arg,
)
from guerdon.sandbox.locking.syscalls import PR_SET_PDEATHSIG

# The versions of Landlock's interface from which on it guards these.
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
RLIMIT_DATA, RLIMIT_AS = 2, 9
# MAP_TYPE is MAP_SHARED (1), MAP_PRIVATE (2) or MAP_SHARED_VALIDATE (3).
MAP_TYPE, MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_HUGETLB = 0xF, 0x20, 0x100, 0x40000
PROT_GROWSDOWN, PROT_GROWSUP = 0x0100_0000, 0x0200_0000
AF_UNIX, SOCK_STREAM, SOCK_TYPE = 1, 1, 0xF
SOL_SOCKET = 1
TIMES = (20, 21)  # SO_RCVTIMEO, SO_SNDTIMEO; not buffers, which no limit counts
QUERY = 0xFFFF_FFFF  # personality(QUERY) changes nothing
O_ACCMODE, O_TRUNC = 0x3, 0x200

_FORKING = (
    arg(0).without(*CLONE_REFUSED),
    # Any other signal would let a child's end kill its parent.
    arg(0).masked(CLONE_SIGNAL, 0, SIGCHLD),
)

COMMON = (
    # Memory, also executable: an extension module is mapped so. Not memory that is shared without a
    # file, nor memory that grows by itself: no limit counts either.
    Group(
        "brk madvise mremap msync munmap",
        Call(
            "mmap",
            arg(3).not_masked(MAP_TYPE | MAP_ANONYMOUS, *(MAP_ANONYMOUS | way for way in (1, 3))),
            arg(3).without(MAP_GROWSDOWN, MAP_HUGETLB),
        ),
        Call("mprotect", arg(2).without(PROT_GROWSDOWN, PROT_GROWSUP)),
    ),
    # Reading and writing what is open.
    Group(
        "close close_range copy_file_range dup dup2 dup3 fadvise64 fdatasync "
        "flock fsync ftruncate lseek pread64 preadv preadv2 pwrite64 pwritev pwritev2 "
        "read readv sendfile write writev",
        # With a mode, it allocates disk space that no limit on files counts.
        Call("fallocate", arg(1).equals(0)),
        Call("fcntl", arg(1).among(*FCNTL)),
        Call("ioctl", arg(1).among(*IOCTL)),
    ),
    # Files by name: Landlock determines which can be opened, made, moved and removed.
    Group(
        "link linkat mkdir mkdirat rename renameat renameat2 rmdir symlink symlinkat "
        "unlink unlinkat"
    ),
    # Looking at files and folders. Landlock doesn't hide that a file is there.
    Group(
        "access chdir faccessat faccessat2 fchdir fstat fstatfs getcwd getdents "
        "getdents64 lstat newfstatat readlink readlinkat stat statfs statx umask"
    ),
    # Landlock doesn't guard modes and times. Code that copies a file sets them on the copy, so
    # nothing is done, and the answer is a success.
    Group("chmod fchmod fchmodat fchmodat2 futimesat utime utimensat utimes", answer=NOTHING),
    # Nor extended attributes; code that copies a file accepts that there are none.
    Group(
        "fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr "
        "listxattr listxattrat llistxattr lremovexattr lsetxattr removexattr "
        "removexattrat setxattr setxattrat",
        answer=UNSUPPORTED,
    ),
    # Time. Not timer_create, whose timers send any signal.
    Group(
        "alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday "
        "nanosleep setitimer time timerfd_create timerfd_gettime timerfd_settime times"
    ),
    # Waiting for something.
    Group(
        "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd "
        "eventfd2 pause poll ppoll pselect6 select"
    ),
    # Pipes, and pairs of sockets, as asyncio makes them. No socket that could reach another process
    # can be made; datagrams could be sent to a name, and messages could carry descriptors.
    Group(
        "getpeername getsockname getsockopt pipe pipe2 recvfrom shutdown",
        Call("socketpair", arg(0).equals(AF_UNIX), arg(1).masked(SOCK_TYPE, SOCK_STREAM)),
        Call("sendto", arg(4).is_null()),
        Call("setsockopt", arg(1).equals(SOL_SOCKET), arg(2).among(*TIMES)),
    ),
    # Threads and processes. No process can leave its process group or session, so that killing the
    # group kills them all.
    Group(
        "exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake "
        "getcpu gettid restart_syscall rseq sched_get_priority_max sched_get_priority_min "
        "sched_yield set_robust_list set_tid_address vfork wait4 waitid",
        Call("clone", *_FORKING),
    ),
    # Their flags are in memory, where a filter can't look. The C library takes clone and openat
    # instead.
    Group("clone3 openat2", answer=ABSENT),
    # Handling signals.
    Group(
        "rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend "
        "rt_sigtimedwait sigaltstack signalfd signalfd4"
    ),
    # Questions about the process itself.
    Group(
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

# What begins a call: receiving its descriptors, the second filter, its memory, and ending with
# the template.
TEMPLATE_ONLY = Group(
    "recvmsg sendmsg",
    Call("prctl", arg(0).equals(PR_SET_PDEATHSIG), arg(1).is_long(SIGKILL)),
    Call("prlimit64", arg(0).equals(0), arg(1).among(RLIMIT_DATA, RLIMIT_AS)),
    Call("seccomp", arg(0).equals(SECCOMP_SET_MODE_FILTER), arg(1).is_long(0)),
)


def template(abi: int) -> Policy:
    """The policy of the process that imports a function and forks its calls.

    Example:
        >>> from guerdon.sandbox.locking.rules import template
        >>> template(7).name
        'template'

    Args:
        abi: The version of Landlock's interface; the filter guards what an old one doesn't.
    """
    return Policy("template", (*COMMON, *_opening(abi), _signals(abi), TEMPLATE_ONLY))


def program(abi: int) -> Policy:
    """The policy of a process that runs a program.

    Args:
        abi: As for `template`.
    """
    return Policy("program", (*COMMON, *_opening(abi), _signals(abi)))


def function_call() -> Policy:
    """What a call is refused beyond its template.

    It adds to the filter that is loaded already, and is short: it is loaded at each call.
    """
    to_itself = arg(0).equals(OWN_PID)
    return Policy(
        "function_call",
        (
            # No new process, only threads.
            Group("fork vfork", answer=REFUSE),
            Group(Call("clone", arg(0).having(CLONE_THREAD))),
            # No signal to another: the template and it are in one group.
            Group(*(Call(name, to_itself) for name in ("kill", "tgkill", "tkill"))),
            # Its filters stay, and it receives no descriptors.
            Group("seccomp recvmsg sendmsg", answer=REFUSE),
            # Its limits can be read, but not changed.
            Group(Call("prlimit64", arg(2).is_null())),
            # It ends with its template.
            Group(Call("prctl", arg(0).is_not(PR_SET_PDEATHSIG))),
        ),
        otherwise=ALLOW,
        newer=ALLOW,
        native_only=False,
    )


def _opening(abi: int) -> tuple[Group, ...]:
    if abi >= GUARDS_TRUNCATION:
        return (Group("creat open openat truncate"),)

    def writing(place: int) -> Condition:
        # Of the four ways to open, 0 reads and 3 neither reads nor writes: yet both truncate.
        return arg(place).not_masked(O_TRUNC | O_ACCMODE, O_TRUNC, O_TRUNC | O_ACCMODE)

    return (
        # This Landlock guards opening for writing, but not truncating.
        Group("creat", Call("open", writing(1)), Call("openat", writing(2))),
    )


def _signals(abi: int) -> Group:
    # A later Landlock keeps signals inside; otherwise a process may signal itself alone.
    receiver = () if abi >= GUARDS_SIGNALS else (arg(0).equals(OWN_PID),)
    places = {"kill": 1, "tgkill": 2, "tkill": 1}
    return Group(
        *(Call(name, *receiver, arg(place).is_not(SIGKILL)) for name, place in places.items())
    )
