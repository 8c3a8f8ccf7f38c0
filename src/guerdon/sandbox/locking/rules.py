"""The system calls that a locked process may make, and why.

All others are refused. There are three policies: ``template``, for the process that imports a
function and forks calls; ``program``, for one that runs a program; and ``function_call``, which a
call loads on top of the first.

No process can send SIGKILL, even to itself, so that code never causes this signal. Landlock
controls the contents of files; the calls that it doesn't control are answered here.
"""

from __future__ import annotations

from guerdon.sandbox.locking.filters import (
    ABSENT,
    NOTHING,
    OWN_PID,
    REFUSE,
    SECCOMP_SET_MODE_FILTER,
    UNSUPPORTED,
    Policy,
    Rule,
    allow,
    arg,
)
from guerdon.sandbox.locking.syscalls import PR_SET_PDEATHSIG

# The first versions of Landlock's interface that control these.
GUARDS_TRUNCATION = 3
GUARDS_SIGNALS = 6

# The values are those of linux/*.h, and the same on both architectures.
SIGKILL, SIGCHLD = 9, 17
CLONE_THREAD = 0x0001_0000
CLONE_SIGNAL = 0xFF  # the signal that the parent receives at the end
CLONE_REFUSED = (
    0x0000_1000  # PIDFD
    | 0x0000_2000  # PTRACE
    | 0x0000_8000  # PARENT: the signal of its end would go to the parent of the caller
    | 0x0002_0000  # NEWNS
    | 0x0080_0000  # UNTRACED
    | 0x0200_0000  # NEWCGROUP
    | 0x0400_0000  # NEWUTS
    | 0x0800_0000  # NEWIPC
    | 0x1000_0000  # NEWUSER
    | 0x2000_0000  # NEWPID
    | 0x4000_0000  # NEWNET
    | 0x8000_0000  # IO
)
# F_DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, OFD_GETLK, OFD_SETLK, OFD_SETLKW,
# DUPFD_CLOEXEC, GETPIPE_SZ. Not SETOWN, SETSIG, NOTIFY and SETLEASE, which send signals.
FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. Not FIOASYNC, FIOSETOWN, TIOCSTI.
IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# GET_PDEATHSIG, GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, SET_NO_NEW_PRIVS,
# GET_NO_NEW_PRIVS, SET_VMA. Not SET_PDEATHSIG, SET_SECCOMP, SET_MM, SET_PTRACER, SET_DUMPABLE.
PRCTL = (2, 3, 15, 16, 21, 23, 38, 39, 0x53564D41)
RLIMIT_DATA, RLIMIT_STACK, RLIMIT_NPROC, RLIMIT_AS = 2, 3, 6, 9
# MAP_TYPE is MAP_SHARED (1), MAP_PRIVATE (2) or MAP_SHARED_VALIDATE (3).
MAP_TYPE, MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_HUGETLB = 0xF, 0x20, 0x100, 0x40000
PROT_GROWSDOWN, PROT_GROWSUP = 0x0100_0000, 0x0200_0000
AF_UNIX, SOCK_STREAM, SOCK_TYPE = 1, 1, 0xF
SOL_SOCKET = 1
TIMES = (20, 21)  # SO_RCVTIMEO, SO_SNDTIMEO; not buffers, which no limit counts
QUERY = 0xFFFF_FFFF  # personality(QUERY) changes nothing
O_ACCMODE, O_TRUNC = 0x3, 0x200

COMMON = (
    # Memory, also executable: an extension module is mapped so. Not memory that is shared without a
    # file, nor memory that grows by itself: no limit counts either.
    allow("brk madvise mremap msync munmap"),
    allow(
        "mmap",
        arg(3).is_not(*(MAP_ANONYMOUS | way for way in (1, 3)), mask=MAP_TYPE | MAP_ANONYMOUS),
        arg(3).among(0, mask=MAP_GROWSDOWN | MAP_HUGETLB),
    ),
    allow("mprotect", arg(2).among(0, mask=PROT_GROWSDOWN | PROT_GROWSUP)),
    # Reading and writing what is open.
    allow(
        "close close_range copy_file_range dup dup2 dup3 fadvise64 fdatasync "
        "flock fsync ftruncate lseek pread64 preadv preadv2 pwrite64 pwritev pwritev2 "
        "read readv sendfile write writev"
    ),
    # With a mode, it allocates disk space that no limit on files counts.
    allow("fallocate", arg(1).among(0)),
    allow("fcntl", arg(1).among(*FCNTL)),
    allow("ioctl", arg(1).among(*IOCTL)),
    # Files by name: Landlock determines which can be opened, made, moved and removed.
    allow(
        "link linkat mkdir mkdirat rename renameat renameat2 rmdir symlink symlinkat "
        "unlink unlinkat"
    ),
    # The status of files and folders. Landlock doesn't hide that a file is there.
    allow(
        "access chdir faccessat faccessat2 fchdir fstat fstatfs getcwd getdents "
        "getdents64 lstat newfstatat readlink readlinkat stat statfs statx umask"
    ),
    # Landlock doesn't control modes and times. Code that copies a file sets them on the copy, so
    # these calls do nothing and succeed.
    Rule("chmod fchmod fchmodat fchmodat2 futimesat utime utimensat utimes", NOTHING),
    # Nor extended attributes; code that copies a file works without them.
    Rule(
        "fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr "
        "listxattr listxattrat llistxattr lremovexattr lsetxattr removexattr "
        "removexattrat setxattr setxattrat",
        UNSUPPORTED,
    ),
    # Time. Not timer_create, whose timers send any signal.
    allow(
        "alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday "
        "nanosleep setitimer time timerfd_create timerfd_gettime timerfd_settime times"
    ),
    # Waiting for something.
    allow(
        "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd "
        "eventfd2 pause poll ppoll pselect6 select"
    ),
    # Pipes, and pairs of sockets, which asyncio uses. No socket reaches another process: datagrams
    # could be sent to a name, and messages could carry descriptors.
    allow("getpeername getsockname getsockopt pipe pipe2 recvfrom shutdown"),
    allow("socketpair", arg(0).among(AF_UNIX), arg(1).among(SOCK_STREAM, mask=SOCK_TYPE)),
    allow("sendto", arg(4).is_long(0)),
    allow("setsockopt", arg(1).among(SOL_SOCKET), arg(2).among(*TIMES)),
    # Threads and processes. No process can leave its process group or session, so that killing the
    # group kills them all.
    allow(
        "exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake "
        "getcpu gettid restart_syscall rseq sched_get_priority_max sched_get_priority_min "
        "sched_yield set_robust_list set_tid_address vfork wait4 waitid"
    ),
    allow(
        "clone",
        arg(0).among(0, mask=CLONE_REFUSED),
        # Any other signal would let a child's end kill its parent.
        arg(0).among(0, SIGCHLD, mask=CLONE_SIGNAL),
    ),
    # Their flags are in memory, where a filter can't read them. The C library takes clone and
    # openat instead.
    Rule("clone3 openat2", ABSENT),
    # Handling signals.
    allow(
        "rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend "
        "rt_sigtimedwait sigaltstack signalfd signalfd4"
    ),
    # Queries about the process itself.
    allow(
        "capget getegid geteuid getgid getgroups getpgrp getpid getppid getrandom "
        "getresgid getresuid getrlimit getrusage getuid sysinfo uname"
    ),
    allow("getpgid getsid sched_getaffinity sched_getparam sched_getscheduler", arg(0).among(0)),
    allow("getpriority", arg(0).among(0), arg(1).among(0)),
    allow("personality", arg(0).among(QUERY)),
    allow("prctl", arg(0).among(*PRCTL)),
    allow("prlimit64", arg(0).among(0), arg(2).is_long(0)),
    # Programs that recurse deeply raise the limit on their stack.
    allow("prlimit64", arg(0).among(0), arg(1).among(RLIMIT_STACK)),
)

# What begins a call: receiving its descriptors, the second filter, its memory and threads, and
# ending with the template.
TEMPLATE_ONLY = (
    allow("recvmsg sendmsg"),
    allow("prctl", arg(0).among(PR_SET_PDEATHSIG), arg(1).is_long(SIGKILL)),
    allow("prlimit64", arg(0).among(0), arg(1).among(RLIMIT_DATA, RLIMIT_NPROC, RLIMIT_AS)),
    allow("seccomp", arg(0).among(SECCOMP_SET_MODE_FILTER), arg(1).is_long(0)),
)


def template(abi: int) -> Policy:
    """Return the policy of the process that imports a function and forks its calls.

    Example:
        >>> from guerdon.sandbox.locking.rules import template
        >>> template(7).name
        'template'

    Args:
        abi: The version of Landlock's interface; the filter guards what an old one doesn't.
    """
    return Policy("template", (*program(abi).rules, *TEMPLATE_ONLY))


def program(abi: int) -> Policy:
    """Return the policy of a process that runs a program.

    Args:
        abi: As for `template`.
    """
    if abi >= GUARDS_TRUNCATION:
        opening = [allow("creat open openat truncate")]
    else:
        # This Landlock guards opening for writing, but not truncating. Of the four ways to open, 0
        # reads and 3 neither reads nor writes: yet both truncate.
        truncating, mask = (O_TRUNC, O_TRUNC | O_ACCMODE), O_TRUNC | O_ACCMODE
        opening = [
            allow("creat"),
            allow("open", arg(1).is_not(*truncating, mask=mask)),
            allow("openat", arg(2).is_not(*truncating, mask=mask)),
        ]
    # A later Landlock keeps signals inside; otherwise a process may signal itself alone.
    receiver = () if abi >= GUARDS_SIGNALS else (arg(0).among(OWN_PID),)
    signals = (
        allow("kill tkill", *receiver, arg(1).is_not(SIGKILL)),
        allow("tgkill", *receiver, arg(2).is_not(SIGKILL)),
    )
    return Policy("program", (*COMMON, *opening, *signals))


def function_call() -> Policy:
    """Return the policy of a call, in addition to that of its template.

    It is short, since each call loads it.
    """
    rules = (
        # No new process, only threads.
        Rule("fork vfork", REFUSE),
        allow("clone", arg(0).among(CLONE_THREAD, mask=CLONE_THREAD)),
        # No signal to another: the template and it are in one group.
        allow("kill tgkill tkill", arg(0).among(OWN_PID)),
        # Its filters stay, and it receives no descriptors.
        Rule("seccomp recvmsg sendmsg", REFUSE),
        # Its limits can be read, but not changed.
        allow("prlimit64", arg(2).is_long(0)),
        # Its template ends it.
        allow("prctl", arg(0).is_not(PR_SET_PDEATHSIG)),
    )
    return Policy("function_call", rules, on_top=True)
