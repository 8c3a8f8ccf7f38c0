"""Abuse cases: resources. Every bomb is capped, so that one that succeeds does no harm."""

from __future__ import annotations

from functools import partial

from tests.sandbox.conformance.case import CaseGroup
from guerdon.sandbox.protocol import Limits

_MEMORY = Limits(seconds=4, memory_bytes=64 << 20, processes=8, files=20)

_DISK = Limits(seconds=4, memory_bytes=128 << 20, processes=8, file_bytes=1 << 20, files=20)

_SHORT = Limits(seconds=0.4, memory_bytes=128 << 20, processes=8, files=20)

case = CaseGroup("resources")

memory = partial(case, limits=_MEMORY, ends=("memory",))

disk = partial(case, limits=_DISK, ends=("output_limit",))

endless = partial(case, limits=_SHORT, ends=("timeout",))

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("fork bomb", ends=("signal",))
def fork_bomb():
    """Processes are bounded."""
    bounded(lambda count: in_child(lambda: time.sleep(1)), 24, wait=0.5)


@case("chain of forks", ends=("signal",))
def chain_of_forks():
    """Children of children count as well."""
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
        passed(f"{len(seen) - 1} deep")
    else:
        time.sleep(0.5)
        failed("24 deep")


@case("thread bomb", ends=("signal",))
def thread_bomb():
    """Threads are bounded."""
    def take(count):
        threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
    bounded(take, 64, errors=(RuntimeError, MemoryError), wait=0.3)
    os._exit(0)


@memory("memory bomb")
def memory_bomb():
    """Memory ends at the limit."""
    blocks = []
    bounded(lambda count: blocks.append(b"1" * (8 << 20)), 32, errors=MemoryError)


@memory("memory bomb in one piece")
def memory_bomb_in_one_piece():
    """A single large allocation is refused or ended as well."""
    def take(count):
        block = bytearray(256 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1
    bounded(take, 1, errors=MemoryError)


@memory("memory by mmap")
def memory_by_mmap():
    """Mapped memory counts."""
    import mmap
    maps = []
    def take(count):
        maps.append(mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        maps[-1].write(b"1" * (8 << 20))
    bounded(take, 32, errors=(MemoryError, OSError))


@memory("shared memory")
def shared_memory():
    """Memory that processes share counts, or isn't available."""
    import mmap
    maps = []
    def take(count):
        maps.append(mmap.mmap(-1, 8 << 20))
        maps[-1].write(b"1" * (8 << 20))
        in_child(lambda: None)
    bounded(take, 32, errors=(MemoryError, OSError))


@memory("forked memory bomb")
def forked_memory_bomb():
    """Memory is counted over all processes."""
    trying()
    reader, writer = os.pipe()
    def take():
        block = b"1" * (40 << 20)
        os.write(writer, b"1")
        time.sleep(1)
    for _ in range(4):
        in_child(take)
    os.close(writer)
    seen = b""
    while len(seen) < 4 and (more := os.read(reader, 1)):
        seen += more
    if len(seen) == 4:
        time.sleep(0.3)  # a watchdog may take a moment
        failed("four processes took 40 MiB each")
    passed(f"only {len(seen)} of four took 40 MiB")


@memory("memfd", ends=("memory", "output_limit"))
def memfd():
    """Files in memory count as memory, or can't be made."""
    files = []
    def take(count):
        if not files:
            files.append(os.fdopen(os.memfd_create("guerdon"), "wb", buffering=0))
        if files[0].write(b"1" * (8 << 20)) < 8 << 20:
            denied("the file was cut")
    bounded(take, 16, errors=(OSError, MemoryError))


@memory("full pipes", ends=("memory", "timeout"))
def full_pipes():
    """Memory in the kernel's pipes is bounded."""
    import fcntl
    pipes = []
    def take(count):
        pipes.append(os.pipe())
        os.set_blocking(pipes[-1][1], False)
        fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)  # F_SETPIPE_SZ
        os.write(pipes[-1][1], b"1" * (1 << 20))
    bounded(take, 256)


@case("open descriptors")
def open_descriptors():
    """Descriptors are bounded."""
    bounded(lambda count: os.dup(0), 70_000)


@disk("disk: one file")
def disk_one_file():
    """A file ends at the limit."""
    file = open("large", "wb", buffering=0)
    def take(count):
        if file.write(b"1" * (1 << 18)) < 1 << 18:
            denied("the file was cut")
    bounded(take, 64, wait=0.3)


@disk("disk: many files")
def disk_many_files():
    """The sizes of files are added up."""
    def take(count):
        with open(f"part{count}", "wb", buffering=0) as file:
            file.write(b"1" * (1 << 19))
    bounded(take, 16, wait=1)


@disk("disk: deleted files")
def disk_deleted_files():
    """A deleted file that is still open counts."""
    files = []
    def take(count):
        files.append(open("part", "wb", buffering=0))
        os.unlink("part")
        files[-1].write(b"1" * (1 << 19))
    bounded(take, 16, wait=1)


@disk("disk: a hole")
def disk_a_hole():
    """A file's length is bounded, even without content."""
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
    """Empty files count as well."""
    bounded(lambda count: open(f"empty{count}", "xb").close(), 400, wait=1)


@disk("many folders")
def many_folders():
    """Folders count at any depth."""
    def take(count):
        os.mkdir("deeper")
        os.chdir("deeper")
    bounded(take, 200, wait=1)


@endless("endless loop")
def endless_loop():
    """Python that never ends is ended."""
    trying()
    while True:
        pass


@endless("endless loop in C")
def endless_loop_in_c():
    """C code that never checks for signals is ended."""
    import re
    trying()
    re.match("(a+)+$", "a" * 64 + "b")


@endless("sleeping")
def sleeping():
    """Wall-clock time counts, not only processor time."""
    trying()
    while True:
        time.sleep(60)


@endless("ignored signals")
def ignored_signals():
    """A program that ignores signals is ended."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    trying()
    while True:
        pass


@endless(
    "ignored signals, processor time",
    limits=Limits(seconds=3, cpu_seconds=0.5, memory_bytes=128 << 20, processes=8, files=20),
)
def ignored_signals_processor_time():
    """Processor time is limited even if its signal is ignored."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXCPU})
    trying()
    while time.process_time() < 2:
        pass
    failed("it took two seconds of processor time")


@endless(
    "processor time of many",
    limits=Limits(seconds=3, cpu_seconds=0.5, memory_bytes=128 << 20, processes=8, files=20),
)
def processor_time_of_many():
    """Processor time is counted over all processes."""
    trying()
    def burn():
        while time.process_time() < 0.45:
            pass
    for child in [in_child(burn) for _ in range(4)]:
        os.waitpid(child, 0)
    failed("it took 1.8 seconds of processor time")


@endless("a thread that stays")
def a_thread_that_stays():
    """A program whose thread keeps running is ended."""
    def stay():
        while True:
            time.sleep(60)
    trying()
    threading.Thread(target=stay).start()


@case("huge stdout", before="stream = sys.stdout\n", ends=("output_limit",))
@case("huge stderr", before="stream = sys.stderr\n", ends=("output_limit",))
def huge_output():
    """Output is cut at the limit, on both streams."""
    trying()
    for _ in range(64):
        stream.write("1" * (1 << 20))
    stream.flush()


@case("huge stdout of a child", ends=("output_limit", "ok", "timeout"))
def huge_stdout_of_a_child():
    """Output of a child whose parent has ended is cut, or the child is ended."""
    trying()
    def flood():
        for _ in range(64):
            os.write(1, b"1" * (1 << 20))
    in_child(flood)
    os._exit(0)


@case("a daemon that outlives", ends=("ok", "timeout"), limits=_SHORT)
def a_daemon_that_outlives():
    """Nothing goes on after the call."""
    trying()
    def outlive():
        os.closerange(0, 3)
        time.sleep(20)
    def leave():
        for attempt in (os.setsid, lambda: os.setpgid(0, 0)):
            try:
                attempt()
            except OSError:
                continue
        in_child(outlive)
    in_child(leave)
    os._exit(0)


@case("a daemon with stdout open", ends=("ok", "timeout"), limits=_SHORT)
def a_daemon_with_stdout_open():
    """The call ends with its program, even if a child has its stream open."""
    trying()
    in_child(lambda: time.sleep(20))
    os._exit(0)


@case("a stopped child", ends=("ok", "timeout"), limits=_SHORT)
def a_stopped_child():
    """A stopped child is ended as well."""
    trying()
    def stop():
        try:
            os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            time.sleep(20)
    in_child(stop)
    os._exit(0)


@case("shared memory that outlives")
def shared_memory_that_outlives():
    """No shared memory remains after the call."""
    def make():
        made = call("shmget", 0, 4096, 0o1600)
        if own("ipc"):
            denied("it is in a namespace of its own")
        return made
    refused(make=make)
