"""Abuse cases: privileges, and leaks of the host."""

from __future__ import annotations

from tests.sandbox.conformance.case import CaseGroup

case = CaseGroup("privileges")

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("setuid")
def setuid():
    """No program becomes root or another user."""
    def become(change):
        change()
        if own("user"):
            denied("root of its own namespace")
    refused(
        "EINVAL",
        setuid=lambda: become(lambda: os.setuid(0)),
        setresuid=lambda: become(lambda: os.setresuid(-1, 0, -1)),
        setgid=lambda: become(lambda: os.setgid(0)),
        other=lambda: become(lambda: os.setresuid(12345, 12345, 12345)),
        groups=lambda: become(lambda: os.setgroups([0])),
    )


@case("capabilities")
def capabilities():
    """No capability that reaches beyond the sandbox is there or can be taken."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    # What owns files, changes users, reaches processes, mounts, loads, or sets the clock. To
    # read past permissions may be needed to come to Python; other cases show what that opens.
    strong = sum(1 << bit for bit in (0, 3, 5, 6, 7, 12, 16, 17, 19, 21, 22, 25, 27, 38, 39))
    def have():
        call("capget", header, sets)
        effective, permitted = sets[0] | sets[3] << 32, sets[1] | sets[4] << 32
        if (effective | permitted) & strong and not own("user"):
            return hex(effective | permitted)
        denied("none")
    def take():
        more = (ctypes.c_uint32 * 6)(*[1 << 21] * 3)  # CAP_SYS_ADMIN
        call("capset", header, more)
        return have()
    refused(have=have, take=take)


@case("unshare")
def unshare():
    """No namespace is made in which the program is root."""
    flags = {
        "user": 0x10000000, "mount": 0x20000, "network": 0x40000000, "pid": 0x20000000,
        "user and mount": 0x10020000, "ipc": 0x8000000, "cgroup": 0x2000000,
    }
    refused(**each(lambda flag: call("unshare", flag), flags))


@case("clone into a namespace")
def clone_into_a_namespace():
    """No child is made in a namespace in which it is root."""
    NEW_USER = 0x10000000
    frame = (ctypes.c_ulong * 11)(NEW_USER, 0, 0, 0, 17)
    refused(
        clone=lambda: end_clone(call("clone", NEW_USER | 17, 0, 0, 0, 0)),
        clone3=lambda: end_clone(call("clone3", frame, 88)),
    )


@case("setns")
def setns():
    """No namespace of another process is entered."""
    def enter(path, kind):
        return call("setns", os.open(path, os.O_RDONLY), kind)
    refused(
        mount=lambda: enter(f"/proc/{host['sleeper']}/ns/mnt", 0),
        network=lambda: enter("/proc/1/ns/net", 0),
        own=lambda: enter("/proc/self/ns/uts", 0x4000000),
        pidfd=lambda: call("setns", call("pidfd_open", host["pid"], 0), 0x20000),
    )


@case("mount")
def mount():
    """Nothing is mounted, unmounted or moved, by old or new calls."""
    here = os.getcwd().encode()
    refused(
        tmpfs=lambda: call("mount", b"none", here, b"tmpfs", 0, 0),
        bind=lambda: call("mount", here, here, 0, 4096, 0),
        # Of a path that isn't mounted: with the permission it fails with EINVAL.
        remount=lambda: call("mount", 0, here, 0, 32 | 4096, 0),
        umount=lambda: call("umount2", here, 0),
        fsopen=lambda: call("fsopen", b"tmpfs", 0),
        open_tree=lambda: call("open_tree", -100, b"/", 1),
        pivot=lambda: call("pivot_root", here, here),
    )


@case("chroot")
def chroot():
    """The root can't be changed."""
    refused(chroot=lambda: call('chroot', b'.'))


@case("keyctl")
def keyctl():
    """The kernel's keys of the session aren't reachable."""
    refused(
        session=lambda: call("keyctl", 0, -3, 0),  # the number of the session's keyring
        read=lambda: call("keyctl", 11, -3, ctypes.create_string_buffer(64), 64),
        add=lambda: call("add_key", b"user", b"guerdon", b"1", 1, -2),
        request=lambda: call("request_key", b"user", b"guerdon", 0, 0),
    )


@case("bpf")
def bpf():
    """No program is loaded into the kernel."""
    array = (ctypes.c_uint32 * 30)(2, 4, 4, 1)  # BPF_MAP_CREATE of an array of one
    refused(map=lambda: call("bpf", 0, array, 120))


@case("perf")
def perf():
    """Counters of the processor and samples of others aren't read."""
    event = (ctypes.c_uint32 * 32)(1, 128)  # a software event: the clock
    event[10] = 0b1100001  # disabled, without the kernel and the hypervisor
    refused(
        own=lambda: call("perf_event_open", event, 0, -1, -1, 0),
        other=lambda: call("perf_event_open", event, host["sleeper"], -1, -1, 0),
    )


@case("userfaultfd")
def userfaultfd():
    """The kernel can't be stopped while it copies."""
    refused(user=lambda: call("userfaultfd", 0o2000001), any=lambda: call("userfaultfd", 0))


@case("x32 system calls", ends=("signal",))
def x32_system_calls():
    """The second table of calls on x86-64 is closed."""
    if not IS_X86:
        skip("this machine isn't x86-64")
    trying()
    X32, UNSHARE, NEW_USER = 0x40000000, 272, 0x10000000
    refused(unshare=lambda: call(X32 | UNSHARE, NEW_USER), key=lambda: call(X32 | 250, 0, -3))


@case("int80 system calls", ends=("signal",))
def int80_system_calls():
    """The 32-bit table of calls is closed."""
    import mmap
    if not IS_X86:
        skip("this machine isn't x86-64")
    trying()
    UNSHARE, NEW_USER, KEYCTL = 310, 0x10000000, 288
    kind, protection = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7  # read, write, execute
    try:
        page = mmap.mmap(-1, 4096, flags=kind, prot=protection)
    except OSError as error:
        passed(f"no memory to run code in: {name_of(error)}")
        sys.exit()
    # push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; int 0x80; pop rbx; ret
    page.write(bytes.fromhex("53 89f8 89f3 89d1 cd80 5b c3"))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    int80 = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(address)
    def old(*words):
        answer = int80(*words)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return answer
    refused(unshare=lambda: old(UNSHARE, NEW_USER, 0), key=lambda: old(KEYCTL, 0, -3))


@case("running the machine")
def running_the_machine():
    """No administrator's call works."""
    # Each with arguments that do nothing: with the permission it fails because of them.
    refused(
        module=lambda: call("init_module", 0, 0, b""),
        reboot=lambda: call("reboot", 0, 0, 0, 0),
        swap=lambda: call("swapon", b"/dev/null", 0),
        clock=lambda: call("settimeofday", 0, 0),
        hostname=lambda: call("sethostname", b"", -1),
        log=lambda: call("syslog", 10, 0, 0),
    )


@case("typing into the terminal")
def typing_into_the_terminal():
    """Nothing is typed into the terminal of the user."""
    import fcntl
    TIOCSTI, TIOCLINUX = 0x5412, 0x541C
    refused(
        "ENOTTY EBADF ENXIO",
        **{str(at): lambda at=at: fcntl.ioctl(at, TIOCSTI, b"#") for at in (0, 1, 2)},
        high=lambda: call("ioctl", 0, TIOCSTI | 1 << 40, b"#"),
        paste=lambda: fcntl.ioctl(0, TIOCLINUX, b"\3"),
        tty=lambda: os.open("/dev/tty", os.O_RDWR),
    )


@case("leaked descriptors")
def leaked_descriptors():
    """No open descriptor of the host is inherited."""
    found = {}
    for descriptor in range(3, 4096):
        try:
            found[str(descriptor)] = f"mode {os.fstat(descriptor).st_mode:o}"
        except OSError:
            continue
    clean(**found)


@case("leaked streams")
def leaked_streams():
    """The three streams aren't a file or terminal of the host."""
    for descriptor in (0, 1, 2):
        seen = os.fstat(descriptor)
        if [seen.st_dev, seen.st_ino] in host["streams"] or os.isatty(descriptor):
            failed(f"descriptor {descriptor} is the host's own, or a terminal")
    passed("none is the host's")


@case("leaked tokens")
def leaked_tokens():
    """The host's environment variables aren't inherited."""
    variable = host["variable"].encode()
    try:
        with open("/proc/self/environ", "rb") as file:
            first = file.read()
    except OSError:
        first = b""
    clean(
        variable=variable in os.environb,
        c_library=libc.getenv(variable),
        process=variable in first,
        others=[name for name in os.environ if "TOKEN" in name or "SECRET" in name],
    )
