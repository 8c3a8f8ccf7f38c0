"""Abuse cases: resources. Every bomb is capped, so that one that goes off does no harm."""

from __future__ import annotations

from functools import partial

from guerdon.sandbox.conformance.case import CaseGroup
from guerdon.sandbox.protocol import Limits

__all__ = ["RESOURCES"]

_MEMORY = Limits(seconds=4, memory_bytes=64 << 20, processes=8, files=20)

_DISK = Limits(seconds=4, memory_bytes=128 << 20, processes=8, file_bytes=1 << 20, files=20)

case = CaseGroup("resources")

memory = partial(case, limits=_MEMORY, ends=("memory",))

disk = partial(case, limits=_DISK, ends=("output_limit",))

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("fork bomb", ends=("signal",))
def fork_bomb():
    """There are no more processes than allowed."""
    trying()
    children = []
    try:
        for _ in range(24):
            child = os.fork()
            if not child:
                time.sleep(1)
                os._exit(0)
            children.append(child)
    except OSError as error:
        held(f"{errno_name(error)} after {len(children)}")
    else:
        time.sleep(0.5)  # a watchdog may take a moment
        broken(f"{len(children)} children")


@case("chain of forks", ends=("signal",))
def chain_of_forks():
    """Children of children count too, and a bomb of them is put out."""
    trying()
    reader, writer = os.pipe()
    depth = 0
    try:
        while depth < 24 and not os.fork():
            depth += 1
            os.write(writer, b"1")
    except OSError:
        os.write(writer, b"x")
    if depth:
        time.sleep(1)
        os._exit(0)
    os.close(writer)
    seen = b""
    while len(seen) < 24 and not seen.endswith(b"x"):
        seen += os.read(reader, 1) or b"x"
    if seen.endswith(b"x"):
        held(f"{len(seen) - 1} deep")
    else:
        time.sleep(0.5)
        broken("24 deep")


@case("thread bomb", ends=("signal",))
def thread_bomb():
    """There are no more threads than allowed."""
    trying()
    threads = 0
    try:
        for _ in range(64):
            threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
            threads += 1
    except (RuntimeError, MemoryError) as error:
        held(f"{error} after {threads}")
    else:
        time.sleep(0.3)
        broken(f"{threads} threads")
    os._exit(0)


@memory("memory bomb")
def memory_bomb():
    """Memory ends at the limit."""
    trying()
    blocks = []
    try:
        for _ in range(32):
            blocks.append(b"1" * (8 << 20))
    except MemoryError:
        held(f"MemoryError after {8 * len(blocks)} MiB")
    else:
        broken("256 MiB were had")


@memory("memory bomb in one piece")
def memory_bomb_in_one_piece():
    """What is asked for at once is refused or ended as well."""
    trying()
    try:
        block = bytearray(256 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1
    except MemoryError:
        held("MemoryError")
    else:
        broken("256 MiB were had")


@memory("memory by mmap")
def memory_by_mmap():
    """Mapped memory counts."""
    import mmap
    trying()
    maps = []
    try:
        for _ in range(32):
            maps.append(mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            maps[-1].write(b"1" * (8 << 20))
    except (MemoryError, OSError) as error:
        held(f"{error!r:.60} after {8 * len(maps)} MiB")
    else:
        broken("256 MiB were had")


@memory("shared memory")
def shared_memory():
    """Memory that processes share counts, or can't be had."""
    import mmap
    trying()
    maps = []
    try:
        for _ in range(32):
            maps.append(mmap.mmap(-1, 8 << 20))
            maps[-1].write(b"1" * (8 << 20))
            if not os.fork():
                os._exit(0)
    except (MemoryError, OSError) as error:
        held(f"{error!r:.60} after {8 * len(maps)} MiB")
    else:
        broken("256 MiB were had")


@memory("forked memory bomb")
def forked_memory_bomb():
    """Memory is counted over all processes."""
    trying()
    reader, writer = os.pipe()
    for _ in range(4):
        if not os.fork():
            block = b"1" * (40 << 20)
            os.write(writer, b"1")
            time.sleep(1)
            os._exit(0)
    os.close(writer)
    seen = b""
    while len(seen) < 4 and (more := os.read(reader, 1)):
        seen += more
    if len(seen) == 4:
        time.sleep(0.3)  # a watchdog may take a moment
        broken("160 MiB were had, 40 in each of four")
    held(f"only {len(seen)} of four had 40 MiB")


@memory("memfd", ends=("memory", "output_limit"))
def memfd():
    """Files in memory count as memory, or can't be made."""
    trying()
    written = 0
    try:
        file = os.fdopen(os.memfd_create("guerdon"), "wb", buffering=0)
        for _ in range(32):
            written += file.write(b"1" * (8 << 20))
    except (OSError, MemoryError) as error:
        held(f"{error!r:.60} after {written >> 20} MiB")
    else:
        if written >= 128 << 20:
            broken(f"{written >> 20} MiB were had")
        held(f"only {written >> 20} MiB were taken")


@memory("full pipes", ends=("memory", "timeout"))
def full_pipes():
    """Memory that lies in the kernel's pipes is bounded."""
    import fcntl
    trying()
    pipes = []
    try:
        for _ in range(256):
            pipes.append(os.pipe())
            os.set_blocking(pipes[-1][1], False)
            fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)  # F_SETPIPE_SZ
            os.write(pipes[-1][1], b"1" * (1 << 20))
    except OSError as error:
        held(f"{errno_name(error)} after {len(pipes)} pipes")
    else:
        broken("256 MiB lie in pipes")


@case("open descriptors")
def open_descriptors():
    """Descriptors are bounded."""
    count = 0
    try:
        while count < 70_000:
            os.dup(0)
            count += 1
    except OSError as error:
        held(f"{errno_name(error)} after {count}")
    else:
        broken(f"{count} were had")


@disk("disk: one file")
def disk_one_file():
    """A file ends at the limit."""
    trying()
    written = 0
    try:
        with open("large", "wb", buffering=0) as file:
            for _ in range(64):
                written += file.write(b"1" * (1 << 18))
    except OSError as error:
        held(f"{errno_name(error)} after {written >> 10} KiB")
    else:
        time.sleep(0.3)
        broken(f"{written >> 10} KiB were written") if written > 1 << 20 else held("cut short")


@disk("disk: many files")
def disk_many_files():
    """Files are counted together."""
    trying()
    written = 0
    try:
        for number in range(16):
            with open(f"part{number}", "wb", buffering=0) as file:
                written += file.write(b"1" * (1 << 19))
    except OSError as error:
        held(f"{errno_name(error)} after {written >> 10} KiB")
    else:
        time.sleep(1)  # a watchdog may take a moment
        broken(f"{written >> 10} KiB were written")


@disk("disk: deleted files")
def disk_deleted_files():
    """A file that has no name any more counts as well."""
    trying()
    files = []
    try:
        for number in range(16):
            files.append(open("part", "wb", buffering=0))
            os.unlink("part")
            files[-1].write(b"1" * (1 << 19))
    except OSError as error:
        held(f"{errno_name(error)} after {len(files)}")
    else:
        time.sleep(1)
        broken("8 MiB lie in deleted files")


@disk("disk: a hole")
def disk_a_hole():
    """A file's length is bounded, even where nothing is in it."""
    def stretch():
        with open("sparse", "wb") as file:
            file.truncate(1 << 40)
    def allocate():
        with open("full", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 8 << 20)
    trying()
    refused("EFBIG EINVAL ENOSPC EDQUOT EOPNOTSUPP", stretch=stretch, allocate=allocate)


@disk("many files")
def many_files():
    """Files are counted, empty ones too."""
    trying()
    count = 0
    try:
        while count < 400:
            open(f"empty{count}", "xb").close()
            count += 1
    except OSError as error:
        held(f"{errno_name(error)} after {count}")
    else:
        time.sleep(1)
        broken(f"{count} files were made")


@disk("many folders")
def many_folders():
    """Folders are counted, however deep."""
    trying()
    count = 0
    try:
        while count < 200:
            os.mkdir("deeper")
            os.chdir("deeper")
            count += 1
    except OSError as error:
        held(f"{errno_name(error)} after {count}")
    else:
        time.sleep(1)
        broken(f"{count} folders were made")


RESOURCES = tuple(case.cases)
