"""System calls: their numbers on each kind of processor, and making those that Python lacks."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache

# The highest number of Linux 6.18, for which the rules were written.
HIGHEST = 470

# linux/prctl.h
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Architecture:
    """A processor architecture.

    Attributes:
        name: Its name in ``uname -m``.
        audit: Its value in a filter (``AUDIT_ARCH_…`` of linux/audit.h).
        column: Its column in the table of numbers.
    """

    name: str
    audit: int
    column: int

    def number(self, call: str) -> int | None:
        """Return the number of a call; None if this architecture lacks it.

        Example:
            >>> from guerdon.sandbox.locking.syscalls import ARCHITECTURES
            >>> ARCHITECTURES["x86_64"].number("read"), ARCHITECTURES["aarch64"].number("open")
            (0, None)

        Raises:
            KeyError: The name isn't in the table.
        """
        return NUMBERS[call][self.column]


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000_003E, 0),
    "aarch64": Architecture("aarch64", 0xC000_00B7, 1),
}


def this_architecture() -> Architecture | None:
    """Return the architecture of this interpreter; None if it isn't supported.

    A 32-bit interpreter on a 64-bit kernel isn't: it makes other calls.
    """
    if sys.platform != "linux" or sys.maxsize <= 2**32 or sys.byteorder != "little":
        return None
    return ARCHITECTURES.get(os.uname().machine)


@cache
def _libc() -> ctypes.CDLL:
    # The C library is already loaded; `ctypes.util.find_library` would start a program.
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library.

    Args:
        name: Its name, such as ``syscall``.
        *arguments: Objects of ctypes; a plain int is passed as 64 bits.

    Raises:
        OSError: It failed.
    """
    wide = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    result = getattr(_libc(), name)(*wide)
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)
    return int(result)


def prctl(option: int, *arguments: int) -> int:
    """Change or read an attribute of this thread (see the manual page).

    Raises:
        OSError: It was refused.
    """
    return call("prctl", option, *(*arguments, 0, 0, 0, 0)[:4])


# The numbers of the system calls that the rules name: of x86-64, then of arm64. None for a call
# that an architecture lacks. They are facts of the kernel's interface and never change; a test
# compares them with the kernel's headers.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "access": (21, None),
    "alarm": (37, None),
    "brk": (12, 214),
    "capget": (125, 90),
    "chdir": (80, 49),
    "chmod": (90, None),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "close_range": (436, 436),
    "copy_file_range": (326, 285),
    "creat": (85, None),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "epoll_create": (213, None),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441),
    "epoll_wait": (232, None),
    "eventfd": (284, None),
    "eventfd2": (290, 19),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fadvise64": (221, 223),
    "fallocate": (285, 47),
    "fchdir": (81, 50),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fcntl": (72, 25),
    "fdatasync": (75, 83),
    "fgetxattr": (193, 10),
    "flistxattr": (196, 13),
    "flock": (73, 32),
    "fork": (57, None),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "fsync": (74, 82),
    "ftruncate": (77, 46),
    "futex": (202, 98),
    "futex_requeue": (456, 456),
    "futex_wait": (455, 455),
    "futex_waitv": (449, 449),
    "futex_wake": (454, 454),
    "futimesat": (261, None),
    "getcpu": (309, 168),
    "getcwd": (79, 17),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getgroups": (115, 158),
    "getitimer": (36, 102),
    "getpeername": (52, 205),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getpriority": (140, 141),
    "getrandom": (318, 278),
    "getresgid": (120, 150),
    "getresuid": (118, 148),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "getsid": (124, 156),
    "getsockname": (51, 204),
    "getsockopt": (55, 209),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "getxattr": (191, 8),
    "getxattrat": (464, 464),
    "ioctl": (16, 29),
    "kill": (62, 129),
    "lgetxattr": (192, 9),
    "link": (86, None),
    "linkat": (265, 37),
    "listxattr": (194, 11),
    "listxattrat": (465, 465),
    "llistxattr": (195, 12),
    "lremovexattr": (198, 15),
    "lseek": (8, 62),
    "lsetxattr": (189, 6),
    "lstat": (6, None),
    "madvise": (28, 233),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "msync": (26, 227),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "pause": (34, None),
    "personality": (135, 92),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "prctl": (157, 167),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "preadv2": (327, 286),
    "prlimit64": (302, 261),
    "pselect6": (270, 72),
    "pwrite64": (18, 68),
    "pwritev": (296, 70),
    "pwritev2": (328, 287),
    "read": (0, 63),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "restart_syscall": (219, 128),
    "rmdir": (84, None),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigpending": (127, 136),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_yield": (24, 124),
    "seccomp": (317, 277),
    "select": (23, None),
    "sendfile": (40, 71),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "setitimer": (38, 103),
    "setsockopt": (54, 208),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shutdown": (48, 210),
    "sigaltstack": (131, 132),
    "signalfd": (282, None),
    "signalfd4": (289, 74),
    "socketpair": (53, 199),
    "stat": (4, None),
    "statfs": (137, 43),
    "statx": (332, 291),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "sysinfo": (99, 179),
    "tgkill": (234, 131),
    "time": (201, None),
    "timerfd_create": (283, 85),
    "timerfd_gettime": (287, 87),
    "timerfd_settime": (286, 86),
    "times": (100, 153),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umask": (95, 166),
    "uname": (63, 160),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vfork": (58, None),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "write": (1, 64),
    "writev": (20, 66),
}
