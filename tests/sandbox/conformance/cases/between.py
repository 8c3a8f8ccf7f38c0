"""Abuse cases: what a call leaves for the next one, or sees of a concurrent one."""

from __future__ import annotations

from functools import partial

from tests.sandbox.conformance.case import CaseGroup, source
from guerdon.sandbox.protocol import Limits

_LIMITS = Limits(seconds=2, memory_bytes=128 << 20, processes=8, files=20)

case = CaseGroup("between calls")
after = partial(case, way="after")

beside = partial(case, way="beside", limits=_LIMITS)

function = partial(
    case,
    way="function",
    limits=Limits(seconds=4, memory_bytes=512 << 20, processes=8, files=20),
)

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


# The companion sends these facts to the program beside it, and waits for its end.
@source
def _neighbor():
    os.environ["GUERDON_NEIGHBOUR"] = host["mark"]
    line = socket.socket(fileno=3)
    line.sendall(json.dumps(os.getpid()).encode() + b"\n")
    line.recv(1)

# The program receives them.
@source
def _meet():
    line = socket.socket(fileno=3)
    pid = json.loads(line.makefile().readline())
    if pid == os.getpid():
        pid = host["sleeper"]  # in namespaces of their own: then the host's is attacked


@source
def poisoned_modules_before():
    import builtins
    json.loads = json.dumps = lambda *arguments, **others: "poisoned"
    os.getcwd = lambda: "poisoned"
    builtins.len = lambda thing: 7
    builtins.guerdon_poison = True
    sys.modules["base64"] = json
    sys.path.insert(0, "/poisoned")
    passed("poisoned")


@after("poisoned modules", companion=poisoned_modules_before)
def poisoned_modules():
    """A patched module is restored in the next call."""
    import base64, builtins
    clean(
        json=json.loads("[1]") != [1],
        os=os.getcwd() == "poisoned",
        len=len("four") != 4,
        builtin=hasattr(builtins, "guerdon_poison"),
        modules=not hasattr(base64, "b64encode"),
        path="/poisoned" in sys.path,
    )


@source
def environment_and_folder_before():
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    os.environ["GUERDON_LEFT"] = "left"
    os.putenv("GUERDON_LEFT", "left")
    os.umask(0o123)
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        os.nice(3)
    except OSError as error:
        print(error, file=sys.stderr)
    passed(priority)


@after("environment and folder", companion=environment_and_folder_before)
def environment_and_folder():
    """Variables, working folder, umask, priority and signals are reset."""
    clean(
        variable="GUERDON_LEFT" in os.environ or libc.getenv(b"GUERDON_LEFT"),
        folder=os.getcwd() == "/",
        umask=os.umask(0o22) == 0o123,
        priority=os.getpriority(os.PRIO_PROCESS, 0) != int(host["before"]),
        signal=signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL,
    )


@source
def files_left_behind_before():
    for name in ("left", "json.py", "sitecustomize.py", "guerdon.py"):
        with open(name, "w") as file:
            file.write("raise SystemExit('poisoned')")
    os.mkdir("folder")
    passed(os.getcwd())


@after("files left behind", companion=files_left_behind_before)
def files_left_behind():
    """The next call's folder is empty, and the last one's is gone."""
    before = host["before"]
    if os.listdir("."):
        failed(f"the folder contains {os.listdir('.')}")
    if os.path.realpath(before) == os.path.realpath("."):
        passed("the folder of that name is empty")
    else:
        refused(list=lambda: os.listdir(before), read=lambda: read(before + "/left"))


@source
def files_locked_against_deletion_before():
    os.mkdir("closed")
    with open("closed/inside", "w") as file:
        file.write("left")
    os.chmod("closed", 0)
    passed(os.getcwd())


@after("files locked against deletion", companion=files_locked_against_deletion_before)
def files_locked_against_deletion():
    """A folder without permissions is removed too."""
    if os.listdir("."):
        failed(f"the folder contains {os.listdir('.')}")
    refused(stat=lambda: os.stat(host["before"] + "/closed"))


@source
def threads_and_children_left_behind_before():
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    def stay():
        os.close(1)
        time.sleep(20)
    passed(in_child(stay))
    os._exit(0)


@after("threads and children left behind", companion=threads_and_children_left_behind_before)
def threads_and_children_left_behind():
    """Nothing that the last call started runs in the next."""
    before = int(host["before"])
    if threading.active_count() != 1:
        failed(f"{threading.active_count()} threads run")
    if before == os.getpid():
        passed("the number is this process's: the namespace is a new one")
    else:
        refused(
            "ECHILD",
            signal=lambda: os.kill(before, 0),
            wait=lambda: os.waitpid(-1, os.WNOHANG),
        )


@case("another call's directory", limits=_LIMITS)
def another_call_s_directory():
    """The folders of concurrent calls, which are beside this one, are neither listed nor made."""
    beside = os.path.dirname(os.getcwd())
    refused(
        list=lambda: os.listdir(beside),
        relative=lambda: os.listdir(".."),
        make=lambda: os.mkdir(beside + "/call-made"),
        write=lambda: open(beside + "/made", "xb"),
        move=lambda: os.rename(os.getcwd(), beside + "/moved"),
    )


@beside("another call's process", before=_meet, companion=_neighbor)
def another_call_s_process():
    """A concurrent call is neither signalled nor changed."""
    refused(
        **signals(pid),
        group=lambda: os.kill(-pid, 0),
        priority=lambda: os.setpriority(os.PRIO_PROCESS, pid, 1),
        limits=lambda: resource.prlimit(pid, resource.RLIMIT_CORE),
    )


@beside("another call's memory", before=_meet, companion=_neighbor)
def another_call_s_memory():
    """The environment and memory of a concurrent call stay unread."""
    here, there = vectors()
    refused(
        environ=lambda: read(f"/proc/{pid}/environ"),
        maps=lambda: read(f"/proc/{pid}/maps"),
        memory=lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR),
        readv=lambda: call("process_vm_readv", pid, here, 1, there, 1, 0),
        attach=lambda: call("ptrace", 0x4206, pid, 0, 0),
        descriptors=lambda: os.listdir(f"/proc/{pid}/fd"),
    )


@source
def descriptors_through_the_stream_before():
    import array
    line = socket.socket(fileno=3)
    here = os.open(".", os.O_RDONLY)
    try:
        line.sendmsg(
            [b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [here]))]
        )
    except OSError:
        line.sendall(b"0")
    line.recv(1)


@beside("descriptors through the stream", companion=descriptors_through_the_stream_before)
def descriptors_through_the_stream():
    """A descriptor that is sent over the stream between two calls opens nothing."""
    line = socket.socket(fileno=3)
    try:
        data, received, _, _ = line.recvmsg(1, 64)
    except OSError as error:
        passed(name_of(error))
        sys.exit()
    if not received:
        passed("no descriptor came")
        sys.exit()
    folder = int.from_bytes(received[0][2][:4], sys.byteorder)
    refused(
        "ENOENT",
        make=lambda: os.open("planted", os.O_CREAT | os.O_WRONLY, dir_fd=folder),
        list=lambda: os.listdir(folder),
    )


@function("a poisoned function")
def a_poisoned_function():
    """Modules that a function has poisoned are restored in the next call."""
    import json, os
    calls = []
    def call(task):
        if task == "leave":
            json.dumps = json.loads = lambda *arguments, **others: "poisoned"
            os.environ["GUERDON_LEFT"] = "left"
            calls.append(1)
            return "left"
        left = json.loads("[1]") != [1], "GUERDON_LEFT" in os.environ, bool(calls)
        return f"FAILED: left: {left}" if any(left) else "passed: nothing is left"


@function("a function's thread")
def a_function_s_thread():
    """A thread that a function starts doesn't run in the next call."""
    import threading, time
    ticks = []
    def tick():
        while True:
            ticks.append(1)
            time.sleep(0.01)
    def call(task):
        if task == "leave":
            try:
                threading.Thread(target=tick, daemon=True).start()
            except RuntimeError as error:
                print(error)
            return "left"
        count = len(ticks)
        time.sleep(0.05)
        bad = len(ticks) != count or count or threading.active_count() > 1
        return "FAILED: the thread runs" if bad else "passed: no thread runs"


@source
def _try():
    def results_of(attempts):
        lines = []
        for name, attempt in attempts.items():
            try:
                attempt()
            except OSError as error:
                lines.append(f"{name}: {error.strerror}")
            else:
                return f"FAILED: {name} succeeded"
        return "passed: " + ", ".join(lines)


@function("a function that reaches out", before=_try)
def a_function_that_reaches_out():
    """A function reaches no network, file or process either."""
    import os, socket, subprocess
    def call(task):
        if task == "leave":
            return "left"
        secret, port, pid = task
        return results_of({
            "read": lambda: open(secret).read(),
            "connect": lambda: socket.create_connection(("127.0.0.1", port), 1),
            "signal": lambda: os.kill(pid, 0),
            "parent": lambda: os.kill(os.getppid(), 0),
            "fork": os.fork,
            "run": lambda: subprocess.run(["true"]),
            "write": lambda: open("/tmp/guerdon-function", "x"),
            "here": lambda: open("function", "x"),
        })


@function("a function's import", before=_try)
def a_function_s_import():
    """A function is locked while it is imported as well."""
    import os, socket
    def connect():
        try:
            return socket.create_connection(("127.0.0.1", 9), 1)
        except ConnectionRefusedError:
            return "there is a network"
    results = results_of({
        "list": lambda: os.listdir("/proc"),
        "read": lambda: open("/etc/shadow").read(),
        "connect": connect,
        "signal": lambda: os.kill(os.getppid(), 0),
    })
    def call(task):
        return results
