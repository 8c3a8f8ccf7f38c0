# ruff: noqa: E501  (programs, a line each)
"""Several runs at a time: threads, tasks, what is cancelled, and the end of it all."""

import gc
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import anyio
import pytest

from guerdon import Limits, open_sandbox
from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.pool import Pool
from guerdon.sandbox.supervisor.processes import children, members, memory_of

WAITS = "import threading; threading.Event().wait()"


@pytest.fixture
def two(level):
    with open_sandbox(level, workers=2) as sandbox:
        yield sandbox


def calls():
    """The calls that run under the supervisors of this process."""
    return [call for supervisor in children(os.getpid()) for call in children(supervisor)]


def test_pool_runs_as_many_calls_as_workers(two, meeting):
    if two.level == "strict":
        program = "print(input())"
        with ThreadPoolExecutor(2) as executor:
            found = list(executor.map(lambda _: two.run(program, stdin="x").stdout, range(2)))
        assert found == ["x\n"] * 2
        return
    waits = "import time\nwhile not os.path.exists({!r}): time.sleep(0.001)\nprint('met')"
    one = meeting.program("a", waits.format(str(meeting.folder / "b")))
    other = meeting.program("b", waits.format(str(meeting.folder / "a")))
    with ThreadPoolExecutor(2) as executor:
        found = [each.stdout for each in executor.map(two.run, [one, other])]
    assert found == ["met\n"] * 2


def test_pool_serves_many_threads(two):
    before = set(children(os.getpid()))  # those of other tests
    with ThreadPoolExecutor(16) as executor:
        found = list(executor.map(lambda n: two.run(f"print({n})").stdout, range(60)))
    assert found == [f"{number}\n" for number in range(60)]
    assert len(set(children(os.getpid())) - before) <= 2


@pytest.mark.anyio
async def test_pool_serves_many_tasks(two, anyio_backend):
    found = {}

    async def run(number):
        found[number] = (await two.run_async(f"print({number})")).stdout

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(run, number)
    assert found == {number: f"{number}\n" for number in range(30)}


@pytest.mark.anyio
async def test_sandbox_is_closed_by_async_with(level, anyio_backend):
    async with open_sandbox(level, workers=1) as sandbox:
        assert (await sandbox.run_async("print(1)")).stdout == "1\n"
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.run_async("print(1)")


@pytest.mark.anyio
async def test_run_async_ends_a_cancelled_call(two, anyio_backend):
    limits = Limits(seconds=60)
    before = set(calls())
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: two.run_async(WAITS, limits=limits))
        with anyio.fail_after(15):
            while not set(calls()) - before:
                await anyio.sleep(0.001)
        [call] = set(calls()) - before
        group.cancel_scope.cancel()
    assert call not in calls()
    assert [(await two.run_async("print(1)")).stdout for _ in range(3)] == ["1\n"] * 3


@pytest.mark.anyio
async def test_run_async_cancels_waiting_calls_at_once(two, anyio_backend):
    limits = Limits(seconds=60)
    before = set(calls())
    with anyio.fail_after(8):  # the patience for a call that doesn't end is longer
        async with anyio.create_task_group() as group:
            for _ in range(30):
                group.start_soon(lambda: two.run_async(WAITS, limits=limits))
            while len(set(calls()) - before) < 2:
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        assert set(calls()) <= before
        assert (await two.run_async("print(1)")).stdout == "1\n"


@pytest.mark.anyio
async def test_run_async_does_not_block_the_event_loop(two, anyio_backend):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await two.run_async("import time; time.sleep(0.1)")
        group.cancel_scope.cancel()
    assert ticks > 3


def test_close_ends_running_calls(level, until):
    known = set(members(os.getpid()))
    sandbox = open_sandbox(level, workers=2)
    outcomes = []

    def run():
        try:
            outcomes.append(sandbox.run(WAITS, limits=Limits(seconds=60)))
        except SandboxError as error:
            outcomes.append(str(error))

    before = set(calls())
    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    until(lambda: len(set(calls()) - before) == 2)
    sandbox.close()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert len(outcomes) == 5
    assert all("closed" in each for each in outcomes)
    assert set(members(os.getpid())) <= known


def test_run_raises_after_close(level):
    sandbox = open_sandbox(level, workers=1)
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("print(1)")


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True])
def test_open_sandbox_refuses_an_invalid_number_of_workers(level, workers):
    with pytest.raises(InvalidArgumentError, match=r"^`workers` must be an integer >= 1, got"):
        open_sandbox(level, workers=workers)


class StandIn:
    """A worker that notes what is asked of it."""

    broken = False
    findings = ()
    made_of = {}  # noqa: RUF012

    def __init__(self):
        self.ran, self.closed = 0, False

    def run(self, tasks):
        self.ran += 1
        return []

    def abort(self):
        self.broken = True

    def close(self):
        self.closed = True


def test_pool_closes_a_worker_that_starts_after_close():
    making, go_on, worker = threading.Event(), threading.Event(), StandIn()

    def make():
        making.set()
        go_on.wait()
        return worker

    pool = Pool(make, 1)
    outcome = []

    def run():
        try:
            outcome.append(pool.run([]))
        except SandboxError as error:
            outcome.append(str(error))

    running, closing = threading.Thread(target=run), threading.Thread(target=pool.close)
    running.start()
    making.wait()
    closing.start()
    while not pool._closed:
        closing.join(0.001)
    go_on.set()
    running.join()
    closing.join()
    assert worker.ran == 0
    assert worker.closed
    assert "closed" in outcome[0]


def test_pool_retries_after_a_worker_that_cannot_be_started():
    made = [SandboxError("no"), SandboxError("no"), StandIn()]

    def make():
        if isinstance(found := made.pop(0), Exception):
            raise found
        return found

    pool = Pool(make, 1)
    for _ in range(2):
        with pytest.raises(SandboxError, match=r"^no$"):
            pool.run([])
    assert pool.run([]) == []
    pool.close()


def test_pool_replaces_a_broken_worker():
    workers = [StandIn(), StandIn()]
    pool = Pool(lambda: workers[1] if workers[0].ran else workers[0], 1)
    with pool.worker() as worker:
        worker.run([])
        worker.broken = True
    assert workers[0].closed
    pool.run([])
    assert workers[1].ran == 1
    pool.close()
    assert workers[1].closed


KINDS = [
    ("print(1)", {}), ("1 / 0", {}), ("import os; os.abort()", {}), ("while True: pass", {"seconds": 0.02}),
    ("while True: print('x' * 100)", {"output_bytes": 1000}), ("bytearray(1 << 40)", {}),
    ("import os\nif not os.fork():\n    import time; time.sleep(60)", {}), ("open('a', 'w').write('x')", {}),
    ("import os; os.closerange(0, 100)", {}), ("import os\nos.mkdir('a'); os.chmod('a', 0)", {}),
]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_run_leaks_nothing_in_hundreds_of_runs(level, temporary):
    def state():
        return len(os.listdir("/proc/self/fd")), set(members(os.getpid()))

    with open_sandbox(level, workers=1) as sandbox:
        [folder] = temporary.iterdir()

        def run(count):
            for number in range(count):
                program, limits = KINDS[number % len(KINDS)]
                sandbox.run(program, limits=Limits(**limits))

        run(50)
        gc.collect()
        before, memory = state(), memory_of(os.getpid())
        threads = threading.active_count()  # idle ones of other tests may end meanwhile
        run(250)
        gc.collect()
        assert state() == before
        assert threading.active_count() <= threads
        assert memory_of(os.getpid()) - memory < 5 << 20
        assert list(folder.iterdir()) == []
    assert list(temporary.iterdir()) == []


def test_run_limits_the_time_of_each_call(two):
    with ThreadPoolExecutor(2) as executor, ExitStack():
        endings = executor.map(
            lambda _: two.run(WAITS, limits=Limits(seconds=0.3)).ending, range(2)
        )
    assert list(endings) == ["timeout"] * 2
