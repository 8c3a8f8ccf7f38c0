"""Abuse cases: files."""

from __future__ import annotations

from tests.sandbox.conformance.case import CaseGroup
from guerdon.sandbox.protocol import Limits

case = CaseGroup("files")

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("a foreign file")
def a_foreign_file():
    """A file that isn't listed stays unread, even where all may read it."""
    refused(read=lambda: read(host['secret']))


@case("home")
def home():
    """Keys and tokens in the home folder are neither read nor listed."""
    if host["at_home"] is None:
        skip("nothing could be put into the home folder")
    refused(read=lambda: read(host["at_home"]), list=lambda: os.listdir(host["home"]))


@case("/etc/shadow")
def etc_shadow():
    """The machine's passwords stay unread."""
    paths = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers")
    refused(**each(read, paths))


@case("the project")
def the_project():
    """The folder that the user works in is neither read nor written."""
    if host["project_file"] is None:
        skip("the tests were started in a folder without files")
    refused(
        read=lambda: read(host["project_file"]),
        write=lambda: os.open(host["project_file"], os.O_WRONLY | os.O_APPEND),
        list=lambda: os.listdir(host["project"]),
        make=lambda: os.mkdir(host["project"] + "/.guerdon-conformance"),
    )


@case("the interpreter")
def the_interpreter():
    """Python itself can't be rewritten."""
    library = os.path.realpath(os.__file__)
    def again():
        descriptor = os.open(library, os.O_RDONLY)
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)
    refused(
        library=lambda: open(library, "ab"),
        python=lambda: open(os.path.realpath(sys.executable), "ab"),
        new=lambda: open(os.path.dirname(library) + "/guerdon_conformance.py", "xb"),
        again=again,
    )


@case("writing a foreign file")
def writing_a_foreign_file():
    """A file that isn't listed stays unchanged."""
    path, folder = host["secret"], host["folder"]
    refused(
        append=lambda: open(path, "ab"),
        truncate=lambda: os.truncate(path, 1),
        empty=lambda: os.open(path, os.O_WRONLY | os.O_TRUNC),
        empty_by_reading=lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
    )


@case("changing a foreign folder")
def changing_a_foreign_folder():
    """Nothing is made, moved or deleted beyond the call's own folder."""
    path, folder = host["secret"], host["folder"]
    refused(
        "EXDEV ENOTSUP",
        make=lambda: open(folder + "/made", "xb"),
        folder=lambda: os.mkdir(folder + "/made"),
        delete=lambda: os.unlink(path),
        rename=lambda: os.rename(path, folder + "/moved"),
        fetch=lambda: os.rename(path, "mine"),
        link=lambda: os.symlink("/", folder + "/link"),
        nameless=lambda: os.open(folder, os.O_TMPFILE | os.O_RDWR),
        fifo=lambda: os.mkfifo(folder + "/fifo"),
    )


@case("listing a foreign folder")
def listing_a_foreign_folder():
    """A folder that isn't listed can't be listed."""
    refused(list=lambda: os.listdir(host['folder']))


@case("symbolic link")
def symbolic_link():
    """A link in the own folder leads nowhere else."""
    def through():
        os.symlink(host["secret"], "link")
        return read("link")
    def folder():
        os.symlink(host["folder"], "folder")
        return read("folder/" + os.path.basename(host["secret"]))
    refused(file=through, folder=folder)


@case("hard link")
def hard_link():
    """A foreign file can't be taken into the own folder."""
    def take(source, **options):
        os.link(source, "taken", **options)
        return read("taken")
    def by_descriptor():
        descriptor = os.open(host["secret"], os.O_PATH)
        return take(f"/proc/self/fd/{descriptor}", follow_symlinks=True)
    refused("EXDEV", link=lambda: take(host["secret"]), descriptor=by_descriptor)


@case("roundabout paths")
def roundabout_paths():
    """Dots, descriptors and another working folder reach nothing."""
    name = os.path.basename(host["secret"])
    def from_there():
        here = os.open(".", os.O_RDONLY)
        os.chdir(host["folder"])
        try:
            return read(name)
        finally:
            os.fchdir(here)
    def by_folder():
        return os.open(name, os.O_RDONLY, dir_fd=os.open(host["folder"], os.O_PATH))
    def by_path():
        descriptor = os.open(host["secret"], os.O_PATH)
        return read(f"/proc/self/fd/{descriptor}")
    refused(
        dots=lambda: read("../" * 30 + host["secret"]),
        chdir=from_there,
        folder=by_folder,
        path=by_path,
    )


@case("/proc/*/root")
def proc_root():
    """No file is reached through another process's root or folder."""
    whose = ("self", "thread-self", "1", os.getppid(), host["pid"], host["sleeper"])
    refused(**each(read, {
        f"{part} of {who}": f"/proc/{who}/{part}{host['secret']}"
        for who in whose for part in ("root", "cwd/" + "../" * 30)
    }))


@case("descriptors of other processes")
def descriptors_of_other_processes():
    """A file that the host has open isn't opened again through /proc."""
    refused(
        read=lambda: read(f"/proc/{host['pid']}/fd/{host['descriptor']}"),
        list=lambda: os.listdir(f"/proc/{host['pid']}/fd"),
        parent=lambda: os.listdir(f"/proc/{os.getppid()}/fd"),
        map_files=lambda: os.listdir(f"/proc/{host['sleeper']}/map_files"),
    )


@case("file handles")
def file_handles():
    """No file is opened by its handle, past its folder's permissions."""
    def open_by_handle():
        handle = (ctypes.c_char * 136)()
        handle[0] = 128
        mount = ctypes.c_int()
        here = os.open(".", os.O_RDONLY)
        secret = host["secret"].encode()
        call("name_to_handle_at", -100, secret, handle, ctypes.byref(mount), 0)
        return call("open_by_handle_at", here, handle, 0)
    refused("ENOTSUP ESTALE", open=open_by_handle)


@case("devices")
def devices():
    """Memory, disks, terminals and hypervisors aren't opened."""
    names = (
        "mem kmem port kmsg fuse kvm net/tun loop-control mapper/control tty tty0 ptmx console "
        "sda vda nvme0n1 xvda dm-0 vhost-net vsock uinput rtc0 hpet snapshot"
    )
    flags = os.O_RDONLY | os.O_NONBLOCK
    refused(**each(lambda name: os.open("/dev/" + name, flags), names.split()))


@case("making devices")
def making_devices():
    """No device is made in the own folder."""
    def make(kind, major, minor):
        os.mknod("device", kind | 0o600, os.makedev(major, minor))
        return os.open("device", os.O_RDONLY)
    refused(memory=lambda: make(0o020000, 1, 1), disk=lambda: make(0o060000, 8, 0))


@case("core_pattern")
def core_pattern():
    """The kernel's settings stay, such as the program that it runs for a core dump."""
    # That one can be opened for writing is proof enough: nothing is written.
    paths = (
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
        "/proc/sysrq-trigger", "/proc/sys/vm/overcommit_memory",
        "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled",
        "/proc/sys/fs/binfmt_misc/register", "/proc/self/oom_score_adj",
        f"/proc/{os.getppid()}/oom_score_adj", "/proc/self/uid_map",
    )
    refused(**each(lambda path: os.open(path, os.O_WRONLY), paths))


@case("control groups")
def control_groups():
    """Limits of cgroups aren't lifted, and no release agent is set."""
    root = "/sys/fs/cgroup/"
    refused(
        "ENOTSUP",
        procs=lambda: os.open(root + "cgroup.procs", os.O_WRONLY),
        agent=lambda: os.open(root + "memory/release_agent", os.O_WRONLY),
        make=lambda: os.mkdir(root + "guerdon-conformance"),
    )


@case("running setuid files")
def running_setuid_files():
    """Programs such as su and mount give no privileges."""
    if libc.prctl(39, 0, 0, 0, 0) == 1:  # PR_GET_NO_NEW_PRIVS
        passed("no_new_privs is set")
    else:
        paths = host["setuid"] or ["/usr/bin/su"]
        refused(**each(lambda path: os.execv(path, [path, "--version"]), paths))


@case("making setuid files")
def making_setuid_files():
    """No file is left that runs as the user of the sandbox."""
    with open("tool", "w"):
        pass
    def make():
        os.chmod("tool", 0o6755)
        has_bit = os.stat("tool").st_mode & 0o6000
        if not has_bit or os.statvfs("tool").f_flag & os.ST_NOSUID or own("user"):
            denied("it runs as the same user")
    refused(chmod=make)


@case("/dev/shm and /tmp")
def dev_shm_and_tmp():
    """No file is made where other programs look for files."""
    def put(folder):
        path = f"{folder}/guerdon-{host['mark']}"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        shared = os.stat(folder).st_dev == host["devices"].get(folder)
        os.unlink(path)
        if not shared:
            denied("a folder of its own")
    folders = ("/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/run", "/", host["home"])
    refused(**each(put, folders))


@case("chmod and chown of foreign files")
def chmod_and_chown_of_foreign_files():
    """The permissions of a foreign file stay, whoever owns it."""
    path, library = host["secret"], os.path.realpath(os.__file__)
    descriptor, seen = os.open(library, os.O_RDONLY), os.stat(library)
    same = seen.st_mode & 0o7777
    refused(
        chmod=lambda: change(path, lambda: os.chmod(path, 0o644)),
        chown=lambda: change(path, lambda: os.chown(path, os.getuid(), -1)),
        library=lambda: change(library, lambda: os.chmod(library, same)),
        fchmod=lambda: change(library, lambda: os.fchmod(descriptor, same)),
        fchown=lambda: change(library, lambda: os.fchown(descriptor, seen.st_uid, -1)),
        fchmodat2=lambda: change(path, lambda: call(452, -100, path.encode(), 0o644, 0)),
    )


@case("times of foreign files")
def times_of_foreign_files():
    """The times of a foreign file stay."""
    path, library = host["secret"], os.path.realpath(os.__file__)
    descriptor, seen = os.open(library, os.O_RDONLY), os.stat(library)
    times = (seen.st_atime_ns, seen.st_mtime_ns)
    refused(
        utime=lambda: change(path, lambda: os.utime(path, (0, 0))),
        now=lambda: change(path, lambda: os.utime(path)),
        futimens=lambda: change(library, lambda: os.utime(descriptor, ns=times)),
    )


@case("attributes of foreign files")
def attributes_of_foreign_files():
    """Extended attributes and flags of a foreign file stay."""
    path, library = host["secret"], os.path.realpath(os.__file__)
    descriptor = os.open(library, os.O_RDONLY)
    def same_flags():
        import fcntl
        got = bytearray(8)
        fcntl.ioctl(descriptor, 0x80086601, got)  # FS_IOC_GETFLAGS
        fcntl.ioctl(descriptor, 0x40086602, got)  # FS_IOC_SETFLAGS
    refused(
        "ENOTSUP ENOTTY",
        set=lambda: os.setxattr(path, "user.guerdon", b"1"),
        library=lambda: os.setxattr(descriptor, "user.guerdon", b"1"),
        remove=lambda: os.removexattr(path, "user.witness"),
        flags=same_flags,
    )


@case("watching foreign files")
def watching_foreign_files():
    """The use of foreign files isn't observed."""
    def watch():
        descriptor = libc.inotify_init()
        if descriptor == -1:
            raise OSError(ctypes.get_errno(), "inotify_init")
        if libc.inotify_add_watch(descriptor, host["folder"].encode(), 0xFFF) == -1:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
    REPORT_FID = 0x200
    refused(
        inotify=watch,
        fanotify=lambda: call("fanotify_init", 0, 0),
        unprivileged=lambda: call("fanotify_init", REPORT_FID, 0),
    )


@case("no files at all", limits=Limits(seconds=4, memory_bytes=128 << 20, processes=8, files=0))
def no_files_at_all():
    """A call that may write nothing writes nothing."""
    refused(
        "ENOSPC EDQUOT EMFILE",
        file=lambda: open("file", "xb"),
        folder=lambda: os.mkdir("folder"),
        link=lambda: os.symlink("/", "link"),
        nameless=lambda: os.open(".", os.O_TMPFILE | os.O_RDWR),
    )
