"""Abuse cases: files."""

from __future__ import annotations

from functools import partial

from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.protocol import Limits

__all__ = ["FILES"]

_case = partial(Case, group="files")

FILES: tuple[Case, ...] = (
    _case(
        name="a foreign file",
        proves="a file that isn't listed stays unread, even where all may read it",
        program="refused(read=lambda: read(host['secret']))",
    ),
    _case(
        name="home",
        proves="keys and tokens in the home folder stay unread, and so does its list",
        program="""
        if host["at_home"] is None:
            print("not tried: nothing could be put into the home folder")
            sys.exit()
        refused(read=lambda: read(host["at_home"]), list=lambda: os.listdir(host["home"]))
        """,
    ),
    _case(
        name="/etc/shadow",
        proves="the machine's passwords stay unread",
        program="""
        paths = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers")
        refused(**{path: lambda path=path: read(path) for path in paths})
        """,
    ),
    _case(
        name="the project",
        proves="the folder that the person works in stays unread and unwritten",
        program="""
        if host["project_file"] is None:
            print("not tried: the suite was started in a folder without files")
            sys.exit()
        refused(
            read=lambda: read(host["project_file"]),
            write=lambda: os.open(host["project_file"], os.O_WRONLY | os.O_APPEND),
            list=lambda: os.listdir(host["project"]),
            make=lambda: os.mkdir(host["project"] + "/.guerdon-conformance"),
        )
        """,
    ),
    _case(
        name="the interpreter",
        proves="Python itself can't be rewritten for the next one who starts it",
        program="""
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
        """,
    ),
    _case(
        name="writing a foreign file",
        proves="a file that isn't listed stays as it is",
        program="""
        path, folder = host["secret"], host["folder"]
        refused(
            append=lambda: open(path, "ab"),
            truncate=lambda: os.truncate(path, 1),
            empty=lambda: os.open(path, os.O_WRONLY | os.O_TRUNC),
            empty_by_reading=lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
        )
        """,
    ),
    _case(
        name="changing a foreign folder",
        proves="nothing is made, moved or deleted beyond the call's own folder",
        program="""
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
        """,
    ),
    _case(
        name="listing a foreign folder",
        proves="what else there is on the machine isn't listed",
        program="refused(list=lambda: os.listdir(host['folder']))",
    ),
    _case(
        name="symbolic link",
        proves="a link in the own folder leads nowhere else",
        program="""
        def through():
            os.symlink(host["secret"], "link")
            return read("link")
        def folder():
            os.symlink(host["folder"], "folder")
            return read("folder/" + os.path.basename(host["secret"]))
        refused(file=through, folder=folder)
        """,
    ),
    _case(
        name="hard link",
        proves="a foreign file can't be taken into the own folder",
        program="""
        def take(source, **options):
            os.link(source, "taken", **options)
            return read("taken")
        def by_descriptor():
            descriptor = os.open(host["secret"], os.O_PATH)
            return take(f"/proc/self/fd/{descriptor}", follow_symlinks=True)
        refused("EXDEV", link=lambda: take(host["secret"]), descriptor=by_descriptor)
        """,
    ),
    _case(
        name="roundabout paths",
        proves="a way through dots, descriptors or another working folder is no way",
        program="""
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
        """,
    ),
    _case(
        name="/proc/*/root",
        proves="no process's view of the files is borrowed",
        program="""
        whose = ("self", "thread-self", "1", os.getppid(), host["pid"], host["sleeper"])
        refused(**{
            f"{part} of {who}": lambda path=f"/proc/{who}/{part}{host['secret']}": read(path)
            for who in whose for part in ("root", "cwd/" + "../" * 30)
        })
        """,
    ),
    _case(
        name="descriptors of other processes",
        proves="a file that the host has open isn't opened again through /proc",
        program="""
        refused(
            read=lambda: read(f"/proc/{host['pid']}/fd/{host['descriptor']}"),
            list=lambda: os.listdir(f"/proc/{host['pid']}/fd"),
            parent=lambda: os.listdir(f"/proc/{os.getppid()}/fd"),
            map_files=lambda: os.listdir(f"/proc/{host['sleeper']}/map_files"),
        )
        """,
    ),
    _case(
        name="file handles",
        proves="a file isn't opened by its number, past its folder's permissions",
        program="""
        def open_by_handle():
            handle = (ctypes.c_char * 136)()
            handle[0] = 128
            mount = ctypes.c_int()
            here = os.open(".", os.O_RDONLY)
            secret = host["secret"].encode()
            call("name_to_handle_at", -100, secret, handle, ctypes.byref(mount), 0)
            return call("open_by_handle_at", here, handle, 0)
        refused("ENOTSUP ESTALE", open=open_by_handle)
        """,
    ),
    _case(
        name="devices",
        proves="memory, disks, terminals and hypervisors aren't opened",
        program="""
        names = (
            "mem kmem port kmsg fuse kvm net/tun loop-control mapper/control tty tty0 ptmx console "
            "sda vda nvme0n1 xvda dm-0 vhost-net vsock uinput rtc0 hpet snapshot"
        )
        refused(**{
            name: lambda name=name: os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK)
            for name in names.split()
        })
        """,
    ),
    _case(
        name="making devices",
        proves="no device is made in the own folder, to reach the disk through",
        program="""
        def make(kind, major, minor):
            os.mknod("device", kind | 0o600, os.makedev(major, minor))
            return os.open("device", os.O_RDONLY)
        refused(memory=lambda: make(0o020000, 1, 1), disk=lambda: make(0o060000, 8, 0))
        """,
    ),
    _case(
        name="core_pattern",
        proves="the kernel isn't told to run a program of theirs",
        program="""
        # Opened, and closed as it was: that it can be opened for writing is proof enough.
        refused(**{
            path: lambda path=path: os.open(path, os.O_WRONLY)
            for path in (
                "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
                "/proc/sysrq-trigger", "/proc/sys/vm/overcommit_memory",
                "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled",
                "/proc/sys/fs/binfmt_misc/register", "/proc/self/oom_score_adj",
                f"/proc/{os.getppid()}/oom_score_adj", "/proc/self/uid_map",
            )
        })
        """,
    ),
    _case(
        name="control groups",
        proves="limits that stand in cgroups aren't lifted, and no release agent is set",
        program="""
        root = "/sys/fs/cgroup/"
        refused(
            "ENOTSUP",
            procs=lambda: os.open(root + "cgroup.procs", os.O_WRONLY),
            agent=lambda: os.open(root + "memory/release_agent", os.O_WRONLY),
            make=lambda: os.mkdir(root + "guerdon-conformance"),
        )
        """,
    ),
    _case(
        name="running setuid files",
        proves="su, mount and their like don't raise anyone",
        program="""
        if libc.prctl(39, 0, 0, 0, 0) == 1:  # PR_GET_NO_NEW_PRIVS
            held("no_new_privs is set")
        else:
            refused(**{
                path: lambda path=path: os.execv(path, [path, "--version"])
                for path in host["setuid"] or ["/usr/bin/su"]
            })
        """,
    ),
    _case(
        name="making setuid files",
        proves="no file is left that runs as whoever ran the sandbox",
        program="""
        with open("tool", "w"):
            pass
        def make():
            os.chmod("tool", 0o6755)
            if not os.stat("tool").st_mode & 0o6000:
                raise PermissionError(errno.EPERM, "")
            if os.statvfs("tool").f_flag & os.ST_NOSUID or own("user"):
                raise PermissionError(errno.EPERM, "")
        refused(chmod=make)
        """,
    ),
    _case(
        name="/dev/shm and /tmp",
        proves="nothing is put where other programs look",
        program="""
        def put(folder):
            path = f"{folder}/guerdon-{host['mark']}"
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            shared = os.stat(folder).st_dev == host["devices"].get(folder)
            os.unlink(path)
            if not shared:
                raise PermissionError(errno.EPERM, "a folder of its own")
        folders = ("/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/run", "/", host["home"])
        refused(**{folder: lambda folder=folder: put(folder) for folder in folders})
        """,
    ),
    _case(
        name="chmod and chown of foreign files",
        proves="the permissions of a foreign file stay, whoever owns it",
        program="""
        def unchanged(change, path):
            # What does nothing, and says it did, is held as well.
            before = os.stat(path).st_ctime_ns
            change()
            if os.stat(path).st_ctime_ns == before:
                raise PermissionError(errno.EPERM, "it did nothing")
        path, library = host["secret"], os.path.realpath(os.__file__)
        descriptor, seen = os.open(library, os.O_RDONLY), os.stat(library)
        same = seen.st_mode & 0o7777
        refused(
            chmod=lambda: unchanged(lambda: os.chmod(path, 0o644), path),
            chown=lambda: unchanged(lambda: os.chown(path, os.getuid(), -1), path),
            library=lambda: unchanged(lambda: os.chmod(library, same), library),
            fchmod=lambda: unchanged(lambda: os.fchmod(descriptor, same), library),
            fchown=lambda: unchanged(lambda: os.fchown(descriptor, seen.st_uid, -1), library),
            fchmodat2=lambda: unchanged(lambda: call(452, -100, path.encode(), 0o644, 0), path),
        )
        """,
    ),
    _case(
        name="times of foreign files",
        proves="when a foreign file was changed stays as it was",
        program="""
        def unchanged(change, path):
            before = os.stat(path).st_ctime_ns
            change()
            if os.stat(path).st_ctime_ns == before:
                raise PermissionError(errno.EPERM, "it did nothing")
        path, library = host["secret"], os.path.realpath(os.__file__)
        descriptor, seen = os.open(library, os.O_RDONLY), os.stat(library)
        times = (seen.st_atime_ns, seen.st_mtime_ns)
        refused(
            utime=lambda: unchanged(lambda: os.utime(path, (0, 0)), path),
            now=lambda: unchanged(lambda: os.utime(path), path),
            futimens=lambda: unchanged(lambda: os.utime(descriptor, ns=times), library),
        )
        """,
    ),
    _case(
        name="attributes of foreign files",
        proves="extended attributes and flags of a foreign file stay",
        program="""
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
        """,
    ),
    _case(
        name="watching foreign files",
        proves="what others do with their files isn't observed",
        program="""
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
        """,
    ),
    _case(
        name="no files at all",
        proves="where a call may write nothing, it writes nothing",
        limits=Limits(seconds=4, memory_bytes=128 << 20, processes=8, files=0),
        program="""
        refused(
            "ENOSPC EDQUOT EMFILE",
            file=lambda: open("file", "xb"),
            folder=lambda: os.mkdir("folder"),
            link=lambda: os.symlink("/", "link"),
            nameless=lambda: os.open(".", os.O_TMPFILE | os.O_RDWR),
        )
        """,
    ),
)
