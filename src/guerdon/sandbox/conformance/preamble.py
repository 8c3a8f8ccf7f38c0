"""`PREAMBLE`: the names that stand before each case's program."""

from __future__ import annotations

__all__ = ["NUMBERS", "PREAMBLE"]

#: System calls by name, with their number on x86-64 and on arm64. They are kept apart from those
#: that the lock is made of on purpose: a wrong number there would hide itself here.
NUMBERS: dict[str, tuple[int, int]] = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "capget": (125, 90),
    "capset": (126, 91),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fanotify_init": (300, 262),
    "fsopen": (430, 430),
    "getpid": (39, 172),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "mount": (165, 40),
    "mq_notify": (244, 184),
    "mq_open": (240, 180),
    "mq_timedsend": (242, 182),
    "mq_unlink": (241, 181),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "timer_create": (222, 107),
    "timer_settime": (223, 110),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}

_BODY = r'''
import ctypes, errno, json, os, resource, signal, socket, sys, threading, time

host = json.loads(sys.stdin.read() or "{}")  # what the suite has put up on the other side
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(15, host.get("mark", "").encode(), 0, 0, 0)  # PR_SET_NAME: so that leftovers are found
IS_X86 = os.uname().machine == "x86_64"

#: What a sandbox answers: that it isn't allowed, or that there is no such thing.
DENIALS = {
    "EPERM", "EACCES", "EROFS", "ENOSYS", "ENOENT", "ESRCH", "ENETUNREACH", "ECONNREFUSED",
    "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EADDRNOTAVAIL", "EHOSTUNREACH",
}


def call(name, *arguments):
    """A raw system call, by name: what it gave, or OSError."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in padded]
    number = NUMBERS[name][0 if IS_X86 else 1] if isinstance(name, str) else name
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *words)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def held(why):
    print("held:", why, flush=True)


def broken(what):
    print("BROKEN:", what, flush=True)
    sys.exit(1)


def trying():
    print("trying", flush=True)


def errno_name(error):
    if isinstance(error, TimeoutError):
        return "ETIMEDOUT"
    return errno.errorcode.get(error.errno, repr(error))


def refused(also="", **attempts):
    """Make each attempt; none may get through, and each must fail because it was denied."""
    answers = []
    for name, attempt in attempts.items():
        try:
            result = attempt()
        except OSError as error:
            answer = errno_name(error)
            if answer not in DENIALS and answer not in also.split():
                broken(f"{name} failed, but not because it was denied: {answer}")
        else:
            broken(f"{name} gave {result!r:.80}")
        answers.append(f"{name} {answer}")
    held(", ".join(answers))


def survived(**attempts):
    """Make each attempt at the own life; to be here after it is to have survived."""
    trying()
    answers = []
    for name, attempt in attempts.items():
        try:
            attempt()
            answers.append(name + " came back")
        except OSError as error:
            answers.append(f"{name} {errno_name(error)}")
    held(", ".join(answers))


def read(path):
    with open(path, "rb") as file:
        return file.read(200)


def own(namespace):
    """Whether this is in a namespace apart from the host's."""
    try:
        return os.readlink("/proc/self/ns/" + namespace) != host["namespaces"].get(namespace)
    except OSError:
        return False

'''

PREAMBLE = f"NUMBERS = {NUMBERS!r}\n{_BODY}"
