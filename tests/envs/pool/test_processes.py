"""`ProcessBackend`: environments in processes that die, hang, or send what is hard to pickle."""

import asyncio
import contextlib
import ctypes
import gc
import importlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, PrivateAttr

from guerdon import EnvPool, Observation
from guerdon.envs import ProcessBackend, ThreadBackend
from guerdon.envs.pool import processes
from guerdon.errors import EnvError, InvalidArgumentError, LoadError, MissingExtraError, WorkerError
from guerdon.types import Action
from tests.envs.worlds import SOON, Board, Served, World

pytestmark = pytest.mark.edge

SHORT = 0.3
STOPPED = "the worker was stopped because step of slot 2 exceeded its time limit"
ROOT = Path(__file__).parents[3]


class Deed(Action):
    do: str = ""
    size: int = 0


class Seen(Observation):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    frame: Any = None
    _secret: int = PrivateAttr(default=0)


class Stubborn(ValueError):
    """Can't be unpickled: `__init__` takes other arguments than the message."""

    def __init__(self, code, place):
        super().__init__(f"{code} at {place}")


def end(number):
    os.kill(os.getpid(), number)
    time.sleep(SOON)


def fork_twice():
    """Raise OSError if a descriptor is closed in the fork of a fork that opened it."""
    if os.fork() == 0:
        files = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
        if os.fork() == 0:
            try:
                for each in files:
                    os.fstat(each)
            except OSError:
                os._exit(1)
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    if os.wait()[1]:
        raise OSError("a descriptor was closed")


DEEDS = {
    "": lambda: None,
    "exit": lambda: os._exit(7),
    "kill": lambda: end(signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "hang": lambda: time.sleep(SOON),
    "hang with the lock": lambda: ctypes.PyDLL(None).sleep(SOON),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "start a process": lambda: subprocess.Popen(["sleep", str(SOON)]),
    "start a thread": lambda: threading.Thread(target=time.sleep, args=[SOON]).start(),
    "fork": lambda: os.fork() or time.sleep(SOON),
    "fork twice": lambda: fork_twice(),
    "real-time signal": lambda: end(40),
    "asyncio.run": lambda: asyncio.run(asyncio.sleep(0)),
}


class Risky(World):
    """Does what its action names, also to its process."""

    action_type = Deed

    def reset(self, seed=None, episode_id=None, **kwargs):
        DEEDS[kwargs.get("do", "")]()
        return Seen(metadata={"process": os.getpid(), "cores": len(os.sched_getaffinity(0))})

    def step(self, action: Deed, timeout_s=None, **kwargs):
        if action.do == "stubborn":
            raise Stubborn(3, "sea")
        if action.do == "lock":
            return Seen(frame=time.sleep, metadata={"generator": (each for each in "ab")})
        DEEDS[action.do]()
        seen = Seen(frame=np.full(action.size, 7, np.uint8), metadata={"process": os.getpid()})
        seen._secret = action.size
        return seen


class AsyncRisky(Risky):
    waiting = 0  # in this process

    async def step_async(self, action, timeout_s=None, **kwargs):
        if action.do == "meet":
            AsyncRisky.waiting += 1
            while AsyncRisky.waiting < action.size:
                await asyncio.sleep(0.01)
        await asyncio.sleep(SOON if action.do == "hang" else 0.01)
        return Seen()


def play(main):
    async def limited():
        async with asyncio.timeout(2 * SOON):
            return await main()

    return asyncio.run(limited())


def new_pool(n=4, workers=2, env=Risky, **options):
    backend = ProcessBackend(env, n, workers=workers, **options)
    return EnvPool(backend=backend, n=n, timeout_s=SOON)


def do(*deeds):
    return [{"do": deed} for deed in deeds]


def errors(observations):
    return [each.metadata.get("error") for each in observations]


def ids(observations):
    return [each.metadata["process"] for each in observations]


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def group(leader):
    every = [int(each) for each in os.listdir("/proc") if each.isdigit()]
    return [each for each in every if is_running(each) and os.getpgid(each) == leader]


def wait_for_end(*numbers):
    until = time.monotonic() + SOON
    while any(map(is_running, numbers)):
        assert time.monotonic() < until, "a process is left"
        time.sleep(0.01)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


# A worker that dies or is killed


@pytest.mark.parametrize(
    ("deed", "how"),
    [
        ("exit", "exited with code 7"),
        ("kill", "was killed by SIGKILL (out of memory?)"),
        ("segfault", "was killed by SIGSEGV"),
        ("real-time signal", "was killed by signal 40"),
    ],
)
def test_process_backend_a_worker_that_dies_fails_its_slots_alone(deed, how):
    async def main():
        async with new_pool(6) as pool:  # slots 0, 2 and 4 share a process
            before = ids(await pool.reset_batch())
            stepped = await pool.step_batch(do("", "", deed, "", "", ""))
            failed = f"WorkerError: the worker process {how} in step of slot 2"
            assert errors(stepped) == [None, None, failed, None, failed, None]
            assert [each.done for each in stepped] == [False, False, True, False, True, False]
            again = await pool.step_batch(do("", "", "", "", "", ""))
            assert [error and error.partition(":")[0] for error in errors(again)] == [
                "EpisodeError", None, "EpisodeError", None, "EpisodeError", None,
            ]  # fmt: skip
            await pool.reset_batch(slots=[2])
            stepped = await pool.step_batch([None, None, None, None, {}, None])
            assert how in errors(stepped[4:5])[0]
            assert errors(stepped[4:5])[0].endswith("; reset the slot")
            after = ids(await pool.reset_batch(slots=[0, 2, 4]))
            assert len({*after, before[0]}) == 2
            stepped = await pool.step_batch(do("", "", "", "", "", ""))
            assert errors(stepped) == [None] * 6
            assert ids(stepped)[1::2] == before[1::2]
            wait_for_end(before[0])

    play(main)


@pytest.mark.parametrize("deed", ["hang", "hang with the lock"])
def test_process_backend_a_step_that_hangs_stops_its_worker_and_finished_slots_keep_results(deed):
    async def main():
        async with new_pool(6) as pool:
            before = ids(await pool.reset_batch())
            stepped = await pool.step_batch(do("", "", deed, "", "", ""), timeout_s=SHORT)
            assert errors(stepped) == [
                None, None,
                "EnvTimeoutError: the step took longer than 0.3 s", None,
                f"WorkerError: {STOPPED}", None,
            ]  # fmt: skip
            wait_for_end(before[0])
            assert errors(await pool.reset_batch()) == [None] * 6
            assert errors(await pool.step_batch(do(*[""] * 6))) == [None] * 6

    play(main)


@pytest.mark.parametrize("deed", ["start a process", "fork"])
@pytest.mark.parametrize("kill", [True, False])
def test_process_backend_processes_that_environments_leave_end_with_their_worker(deed, kill):
    async def main():
        async with new_pool(2) as pool:
            (before, _) = ids(await pool.reset_batch())
            assert errors(await pool.step_batch(do(deed, ""))) == [None, None]
            members = group(before)
            assert len(members) == 3  # and the guard
            if kill:  # noticed at once, though the other process has the worker's descriptors
                error, _ = errors(await pool.step_batch(do("kill", "")))
                assert "was killed by SIGKILL" in error
                wait_for_end(*members)
        wait_for_end(*members)

    play(main)


def test_process_backend_a_thread_that_an_environment_leaves_ends_with_its_worker():
    async def main():
        pool = new_pool(2, close_timeout_s=SOON)
        async with pool:
            processes = ids(await pool.reset_batch())
            assert errors(await pool.step_batch(do("start a thread", ""))) == [None, None]
            began = time.monotonic()
        assert time.monotonic() - began < SOON
        wait_for_end(*processes)

    play(main)


def test_process_backend_a_call_that_waits_for_its_worker_is_not_late():
    class Slow(World):
        def step(self, action, timeout_s=None, **kwargs):
            time.sleep(0.2)
            return Board()

    async def main():
        async with new_pool(6, 1, Slow) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([{}] * 6, timeout_s=0.5)
            assert errors(stepped) == [None] * 6

    play(main)


def test_process_backend_a_call_that_waits_for_an_earlier_batch_is_not_late(tmp_path):
    entered, gate = tmp_path / "entered", tmp_path / "gate"

    class Waiting(World):
        def step(self, action, timeout_s=None, **kwargs):
            if action.value == 1:
                entered.touch()
                while not gate.exists():
                    time.sleep(0.01)
            return Board()

    async def main():
        async with new_pool(2, 1, Waiting) as pool:
            await pool.reset_batch()
            first = asyncio.ensure_future(pool.step_batch([{"value": 1}, None]))
            while not entered.exists():
                await asyncio.sleep(0.01)
            second = asyncio.ensure_future(pool.step_batch([None, {"value": 2}], timeout_s=0.2))
            done, _ = await asyncio.wait([second], timeout=0.5)  # longer than its own limit
            assert not done
            gate.touch()
            assert errors([(await first)[0], (await second)[1]]) == [None, None]

    play(main)


def test_process_backend_every_reset_that_kills_its_worker_says_why():
    async def main():
        async with new_pool(1) as pool:
            for _ in range(2):
                last = await pool.reset_batch(do="exit")
                assert errors(last) == [
                    "WorkerError: the worker process exited with code 7 in reset of slot 0"
                ]
            assert errors(await pool.reset_batch()) == [None]

    play(main)


class LeavesInClose(Risky):
    """What it does when it is closed is an argument of its reset."""

    then = ""

    def reset(self, seed=None, episode_id=None, then="", **kwargs):
        self.then = then
        return super().reset(seed, episode_id, **kwargs)

    def close(self):
        DEEDS[self.then]()


@pytest.mark.parametrize(
    ("deed", "own", "later"),
    [
        (
            "exit",
            "WorkerError: the worker process exited with code 7 in reset of slot 1",
            "WorkerError: the worker process exited with code 7 in reset of slot 1",
        ),
        (
            "hang",
            "EnvTimeoutError: the reset took longer than 1 s",
            "WorkerError: the worker was stopped because reset of slot 1 exceeded its time limit",
        ),
    ],
    ids=["exits", "hangs"],
)
def test_process_backend_reset_names_the_slot_whose_failed_environment_ended_the_worker(
    deed, own, later
):
    async def main():
        backend = ProcessBackend(LeavesInClose, 3, workers=1)
        async with EnvPool(backend=backend, n=3, timeout_s=1.0) as pool:
            await pool.reset_batch(options=[{}, {"then": deed}, {}])
            await pool.step_batch(do(*["stubborn"] * 3))
            assert errors(await pool.reset_batch()) == [None, own, later]
            assert errors(await pool.reset_batch()) == [None] * 3

    play(main)


def test_process_backend_a_worker_that_dies_between_two_steps_names_no_slot():
    async def main():
        async with new_pool(3, 1) as pool:
            (process, *_) = ids(await pool.reset_batch())
            await pool.step_batch(do("", "", ""))
            os.kill(process, signal.SIGKILL)
            wait_for_end(process)  # this blocks the loop, so that the pool doesn't know yet
            stepped = await pool.step_batch(do("", "", ""))
            how = "WorkerError: the worker process was killed by SIGKILL (out of memory?)"
            assert errors(stepped) == [how] * 3

    play(main)


def test_process_backend_async_environments_of_one_worker_wait_concurrently():
    async def main():
        async with new_pool(20, 1, AsyncRisky) as pool:
            await pool.reset_batch()
            meet = [{"do": "meet", "size": 20}] * 20
            assert errors(await pool.step_batch(meet)) == [None] * 20
            stepped = await pool.step_batch(do("hang", *[""] * 19), timeout_s=SHORT)
            assert errors(stepped)[1:] == [None] * 19

    play(main)


@pytest.mark.parametrize(
    ("env", "threads"), [(AsyncRisky, 1), (Risky, 3)], ids=["async", "threads"]
)
def test_process_backend_every_slot_that_exceeds_the_time_limit_has_its_own_error(env, threads):
    async def main():
        async with new_pool(3, 1, env, threads_per_worker=threads) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch(do("hang", "", "hang"), timeout_s=1.0)
            late = "EnvTimeoutError: the step took longer than 1 s"
            assert errors(stepped) == [late, None, late]

    play(main)


class HalfAsync(Risky):
    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        if "do" in kwargs:
            await asyncio.sleep(SOON)
        return Seen(metadata={"process": os.getpid()})


def test_process_backend_an_async_reset_that_hangs_ends_while_other_slots_are_stepped():
    async def main():
        backend = ProcessBackend(HalfAsync, 2, workers=1)
        async with EnvPool(backend=backend, n=2, timeout_s=1.0) as pool:
            await pool.reset_batch()
            hanging = asyncio.ensure_future(pool.reset_batch(slots=[0], do="hang"))
            while not hanging.done():
                await pool.step_batch([None, {}])
                await asyncio.sleep(0)
            assert errors(await hanging) == ["EnvTimeoutError: the reset took longer than 1 s"]

    play(main)


def test_process_backend_as_completed_does_not_wait_for_the_slowest():
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            seen = []
            async for slot, _ in pool.as_completed(do("", "hang"), timeout_s=1.0):
                seen.append(slot)
                if slot == 0 and len(seen) < 5:
                    pool.send(0, {})
            assert seen == [0] * 5 + [1]

    play(main)


class Reads(Risky):
    """Waits for a byte from the pipe that its action names."""

    def step(self, action: Deed, timeout_s=None, **kwargs):
        if action.do:
            with open(action.do, "rb", buffering=0) as pipe:
                pipe.read(1)
        return Seen()


def test_process_backend_as_completed_yields_results_of_a_worker_that_is_in_another_step(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    async def main():
        async with new_pool(3, 1, Reads) as pool:
            await pool.reset_batch()
            with open(path, "r+b", buffering=0) as pipe:
                stream = pool.as_completed(do("", "", str(path)), timeout_s=SOON / 4)
                seen = [await anext(stream), await anext(stream)]
                pipe.write(b"x")
                seen += [each async for each in stream]
            assert [slot for slot, _ in seen] == [0, 1, 2]
            assert errors(each for _, each in seen) == [None] * 3

    play(main)


def test_process_backend_threads_per_worker_run_at_the_same_time():
    async def main():
        async with new_pool(2, 1, threads_per_worker=2) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch(do("hang", ""), timeout_s=1.0)
            assert errors(stepped)[1] is None

    play(main)


def test_process_backend_cpu_affinity_binds_each_worker_to_a_core():
    async def main():
        async with new_pool(2, cpu_affinity=True) as pool:
            first = await pool.reset_batch()
            assert [each.metadata["cores"] for each in first] == [1, 1]

    play(main)


def test_process_backend_an_interrupt_of_the_terminal_does_not_end_a_worker():
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            assert errors(await pool.step_batch(do("interrupt", "interrupt"))) == [None, None]

    play(main)


# What travels


def test_process_backend_results_of_any_size_arrive_unchanged():
    sizes = [0, 1, 10**5, 3 * 10**7, 8 * 10**7]  # the last exceeds the shared memory

    async def main():
        async with new_pool(5, 2) as pool:
            await pool.reset_batch()
            for _ in range(3):
                stepped = await pool.step_batch([{"size": size} for size in sizes])
                for seen, size in zip(stepped, sizes, strict=True):
                    assert type(seen) is Seen
                    assert seen._secret == size
                    assert seen.frame.dtype == np.uint8
                    assert seen.frame.shape == (size,)
                    assert not size or seen.frame.min() == seen.frame.max() == 7
                    seen.frame += 1  # it is the caller's own

    play(main)


def test_process_backend_results_that_exceed_the_memory_together_arrive_unchanged():
    async def main():
        async with new_pool(4, 2) as pool:
            await pool.reset_batch()
            sizes, sent = dict.fromkeys(range(4), 10**6), 4
            actions = [{"size": size} for size in sizes.values()]
            async for slot, seen in pool.as_completed(actions):
                assert seen.frame.shape == (sizes[slot],)
                assert seen.frame.min() == seen.frame.max() == 7
                if sent < 200:
                    sizes[slot], sent = 10**6 + sent, sent + 1
                    pool.send(slot, {"size": sizes[slot]})

    play(main)


def test_process_backend_a_result_that_ends_with_the_memory_arrives(monkeypatch):
    lengths = []
    read = processes.Codec.read_result

    def read_result(self, slot, data):
        lengths.append(len(data))
        return read(self, slot, data)

    monkeypatch.setattr(processes.Codec, "read_result", read_result)

    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            size = 3 * 10**7
            await pool.step_batch([{"size": size}, None])
            size += processes.HALF - processes.FIRST - 8 - lengths[-1]
            stepped = await pool.step_batch([{"size": size}, {"size": 3}], timeout_s=SOON / 2)
            assert errors(stepped) == [None, None]
            assert [len(seen.frame) for seen in stepped] == [size, 3]

    play(main)


def test_process_backend_what_cannot_be_pickled_is_an_error_of_its_slot():
    async def main():
        async with new_pool(4) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch(do("", "stubborn", "lock", ""))
            good, stubborn, lock, also_good = errors(stepped)
            assert (good, also_good) == (None, None)
            assert stubborn == "Stubborn: 3 at sea"
            assert lock.startswith("InvalidObservationError: the observation can't be sent")
            (bad, *_) = await pool.step_batch([{"do": SHORT.__class__.__dict__}, None, None, None])
            assert "InvalidActionError: the arguments of step can't be sent" in errors([bad])[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        play(main)


def test_process_backend_an_observation_that_cannot_be_pickled_ends_its_episode():
    async def main():
        async with new_pool(2, 1) as pool:
            await pool.reset_batch()
            await pool.step_batch(do("lock", ""))
            stepped = await pool.step_batch(do("", ""))
            assert errors(stepped) == [
                "EpisodeError: the last step failed; reset it to make a new environment", None,
            ]  # fmt: skip
            await pool.reset_batch(slots=[0])
            assert errors(await pool.step_batch(do("", ""))) == [None, None]

    play(main)


def test_process_backend_a_reset_whose_arguments_cannot_be_sent_ends_the_episode():
    async def main():
        async with new_pool(2, 1) as pool:
            await pool.reset_batch()
            (bad,) = await pool.reset_batch(slots=[0], options=[{"task": threading.Lock()}])
            assert "the arguments of reset can't be sent to a worker" in errors([bad])[0]
            stepped = await pool.step_batch(do("", ""))
            failed = "EpisodeError: the last reset failed; reset the slot"
            assert errors(stepped) == [failed, None]
            await pool.reset_batch(slots=[0])
            assert errors(await pool.step_batch(do("", ""))) == [None, None]

    play(main)


def test_process_backend_lambdas_and_local_classes_are_factories():
    class Mine(Observation):
        value: float = 0.0

    class Local(World):
        def step(self, action, timeout_s=None, **kwargs):
            return Mine(value=action.value)

    async def main():
        async with new_pool(2, env=lambda: Local()) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([{"value": 2}, {"value": 3}])
            assert stepped == [Mine(value=2), Mine(value=3)]
            assert {type(each) for each in stepped} == {Mine}

    play(main)


def test_process_backend_environments_of_a_file_are_found_by_its_path(tmp_path):
    (tmp_path / "helper.py").write_text("LIMIT = 3\n")
    (tmp_path / "environment.py").write_text(
        textwrap.dedent("""
        from helper import LIMIT
        from guerdon import Action, Environment, Observation, RegexMatch, State

        class Say(Action):
            text: str

        class Said(Observation):
            text: str = ""

        class Echo(Environment[Say, Said, State]):
            state = State()
            def __init__(self):
                super().__init__(rubric=RegexMatch("."))
            def reset(self, seed=None):
                return Said()
            def step(self, action):
                return Said(text=action.text * LIMIT)
        """)
    )

    async def main():
        async with new_pool(2, env=str(tmp_path)) as pool:
            first = await pool.reset_batch()
            kind = type(first[0])
            stepped = await pool.step_batch([{"text": "a"}, {"text": "b"}])
            assert stepped == [kind(text="aaa"), kind(text="bbb")]

    play(main)


class Pair(Action):
    left: Any = None


class Once(Seen):
    """A class that only one observation has."""


class PairWorld(World):
    """Observations whose metadata can't be read, though their class is new."""

    action_type = Pair

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Once(metadata={"warning": Stubborn(3, "sea")} if seed == 0 else {})

    def step(self, action, timeout_s=None, **kwargs):
        return Once(frame=action.left)


def test_process_backend_a_class_of_a_message_that_cannot_be_read_is_known_afterwards():
    async def main():
        async with new_pool(2, 1, PairWorld) as pool:
            bad, _ = errors(await pool.reset_batch(seeds=[0, 1]))
            assert "the result of the worker can't be read" in bad
            assert await pool.reset_batch(seeds=1) == [Once(), Once()]
            stepped = await pool.step_batch([Pair(left=Stubborn(3, "sea")), Pair(left=2)])
            assert errors(stepped)[0].startswith(
                "InvalidActionError: the arguments can't be read in the worker"
            )
            assert not stepped[0].done
            assert stepped[1] == Once(frame=2)
            stepped = await pool.step_batch([Pair(left=1), Pair(left=2)])
            assert stepped == [Once(frame=1), Once(frame=2)]

    play(main)


T = TypeVar("T")


class Parametrized(Seen, Generic[T]):
    item: T | None = None


class GenericWorld(World):
    def step(self, action, timeout_s=None, **kwargs):
        return Parametrized[int](item=3)


def test_process_backend_a_module_that_is_reloaded_has_its_present_classes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "world-v2.py"  # which is no identifier

    async def main(module):
        async with new_pool(1, env=module.Played) as pool:
            await pool.reset_batch()
            (seen,) = await pool.step_batch([{}])
            assert type(seen) is module.Played.Seen
            assert seen.place == "sea"

    for default in ("land", "sea"):
        source = f"""
        from guerdon import Observation
        from tests.envs.worlds import World

        class Played(World):
            class Seen(Observation):
                place: str = "{default}"
            def step(self, action, timeout_s=None, **kwargs):
                return self.Seen(place="sea")
        """
        file.write_text(textwrap.dedent(source))
        module = importlib.import_module(file.stem)
        if default == "sea":
            importlib.reload(module)
        play(partial(main, module))
    del sys.modules[file.stem]


def test_process_backend_models_of_a_generic_class_keep_their_class():
    async def main():
        async with new_pool(1, env=GenericWorld) as pool:
            await pool.reset_batch()
            (seen,) = await pool.step_batch([{}])
            assert type(seen) is Parametrized[int]

    play(main)


def test_process_backend_factories_of_exec_are_sent_by_value():
    source = "from tests.envs.worlds import World\nclass Made(World): ...\nmake = lambda: Made()"
    variables = {}
    exec(source, variables)

    async def main():
        for env in (variables["Made"], variables["make"]):
            async with new_pool(1, env=env) as pool:
                assert errors(await pool.reset_batch()) == [None]

    play(main)


def test_process_backend_without_cloudpickle_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)

    async def main():
        with pytest.raises(MissingExtraError, match=r"guerdon\[processes\]"):
            async with new_pool(1, env=lambda: Risky()):
                pass

    play(main)


def test_process_backend_sync_environments_may_call_asyncio_run():
    async def main():
        async with new_pool(2) as pool:
            assert errors(await pool.reset_batch(do="asyncio.run")) == [None, None]
            assert errors(await pool.step_batch(do("asyncio.run", ""))) == [None, None]

    play(main)


def broken():
    asyncio.run(asyncio.sleep(0))
    raise AssertionError


class Exiting:
    def __call__(self): ...

    def __reduce__(self):
        return sys.exit, (3,)


class Unloadable:
    def __call__(self): ...

    def __reduce__(self):
        return broken, ()


def test_process_backend_a_factory_that_cannot_be_loaded_is_an_error_of_open():
    async def main():
        with pytest.raises(AssertionError):
            async with new_pool(2, env=Unloadable()):
                pass
        with pytest.raises(EnvError, match=r"loading the environment called sys.exit\(3\)"):
            async with new_pool(2, env=Exiting()):
                pass
        with pytest.raises(LoadError):
            ProcessBackend("no-such-environment", 2)
        with pytest.raises(InvalidArgumentError, match="`workers` must be"):
            ProcessBackend(Risky, 2, workers=0)

    play(main)


# The end


def test_process_backend_close_leaves_no_process_and_no_descriptor():
    async def main():
        before = descriptors()
        for deed in ("", "exit", "hang"):
            async with new_pool(4) as pool:
                left = ids(await pool.reset_batch())
                batch = asyncio.ensure_future(pool.step_batch(do(deed, "", "", "")))
                await asyncio.sleep(0.1)
            await batch
            wait_for_end(*left)
        assert descriptors() == before

    play(main)


def test_process_backend_a_pool_that_is_opened_twice_at_the_same_time_leaves_no_descriptor():
    async def main():
        pool, before = new_pool(1), descriptors()
        opened, refused = await asyncio.gather(
            pool.__aenter__(), pool.__aenter__(), return_exceptions=True
        )
        assert opened is pool
        assert isinstance(refused, InvalidArgumentError)
        assert str(refused) == "the pool is already open"
        left = ids(await pool.reset_batch())
        await pool.close()
        wait_for_end(*left)
        assert descriptors() == before

    play(main)


def test_process_backend_a_pool_that_is_never_closed_warns_and_ends_its_workers():
    async def main():
        pool = new_pool(1)
        await pool.__aenter__()
        left = ids(await pool.reset_batch())
        del pool
        with pytest.warns(ResourceWarning, match="a pool was never closed"):
            gc.collect()
        wait_for_end(*left)

    play(main)


class Lasting(Risky):
    def close(self):
        time.sleep(SOON)


@pytest.mark.parametrize("limit", [0, SHORT])
def test_process_backend_close_that_is_cancelled_leaves_no_process(limit):
    async def main():
        pool = new_pool(2, env=Lasting, close_timeout_s=SOON)
        await pool.__aenter__()
        left = ids(await pool.reset_batch())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(limit):
                await pool.close()
        wait_for_end(*left)

    play(main)


@pytest.mark.parametrize("closes", [True, False])
def test_process_backend_a_fork_of_the_program_does_not_end_the_workers(closes):
    async def main():
        async with new_pool(2) as pool:
            before = ids(await pool.reset_batch())
            child = os.fork()
            if child == 0:
                for worker in pool._backend._workers:
                    if closes:
                        with contextlib.suppress(StopIteration):
                            worker._link.close(0.0).send(None)
                    worker.kill()
                os._exit(0)
            os.waitpid(child, 0)
            assert ids(await pool.step_batch(do("", ""))) == before

    play(main)


def test_process_backend_an_environment_may_fork_a_process_that_forks():
    async def main():
        async with new_pool(1) as pool:
            await pool.reset_batch()
            assert errors(await pool.step_batch(do("fork twice"))) == [None]

    play(main)


def test_process_backend_modules_of_the_working_directory_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])  # a Path, which Python ignores

    async def main():
        async with new_pool(1) as pool:
            assert errors(await pool.reset_batch()) == [None]

    play(main)


def test_process_backend_a_limit_of_the_system_is_an_error_of_open():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def main():
        with pytest.raises(WorkerError, match=r"can't be started: .* File too large"):
            async with new_pool(1):
                pass

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        play(main)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


SCRIPT = """
import asyncio, os, subprocess, sys, time
from guerdon import Action, Environment, EnvPool, Observation, RegexMatch, State

class Say(Action):
    text: str = ""

class Said(Observation):
    text: str = ""

class Echo(Environment[Say, Said, State]):
    state = State()
    def __init__(self):
        super().__init__(rubric=RegexMatch("."))
    def reset(self, seed=None):
        return Said(text=str(os.getpid()))
    def step(self, action):
        if action.text == "hang":
            time.sleep(60)
        if action.text == "start":
            subprocess.Popen(["sleep", "60"])
            time.sleep(60)
        return Said(text=action.text, metadata={"is": isinstance(action, Say)})

async def main():
    async with EnvPool(Echo, n=2, backend="processes") as pool:
        first = await pool.reset_batch()
        assert {type(each) for each in first} == {Said}
        for number in range(3):
            stepped = await pool.step_batch([Say(text="a"), {"text": "b"}])
            assert stepped == [Said(text=each, metadata={"is": True}) for each in "ab"]
        print(*(each.text for each in first), flush=True)
        if sys.argv[1:]:
            await pool.step_batch([Say(text=each) for each in sys.argv[1:]])

asyncio.run(main())
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return [sys.executable, str(path)]


def test_process_backend_classes_of_a_script_without_a_main_guard_keep_their_identity(script):
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=SOON)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["hang", "hang"], ["start", ""]])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_process_backend_workers_end_with_their_parent(script, arguments, number):
    with subprocess.Popen(
        [*script, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        left = [int(each) for each in parent.stdout.readline().split()]
        assert all(map(is_running, left))
        if "start" in arguments:
            until = time.monotonic() + SOON
            while len(members := [each for leader in left for each in group(leader)]) < 5:
                assert time.monotonic() < until
            left = members  # two workers, their guards, and what the environment has started
        parent.send_signal(number)
        wait_for_end(*left)
        assert "guerdon-worker" not in parent.stderr.read()


# The same as threads

moves = st.one_of(
    st.none(),
    st.builds(
        dict,
        do=st.sampled_from(["nothing", "raise", "exit", "fail", "end", "cheat"]),
        value=st.floats(0, 5),
    ),
    st.just({"valu": 1}),
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=st.lists(st.lists(moves, min_size=3, max_size=3), max_size=6))
def test_process_backend_batches_are_those_of_threads(batches):
    def unlike(observation):
        """The observation, without what differs between processes."""
        if observation is None:
            return None
        data = dict(observation)
        data["metadata"] = {k: v for k, v in data["metadata"].items() if k != "process"}
        return type(observation), data

    async def main():
        async with (
            EnvPool(backend=ThreadBackend(Served, 3), n=3) as threads,
            EnvPool(backend=ProcessBackend(Served, 3, workers=2), n=3) as others,
        ):
            for pool in (threads, others):
                assert errors(await pool.reset_batch(seeds=1)) == [None] * 3
            for actions in batches:
                ours, theirs = [await pool.step_batch(actions) for pool in (threads, others)]
                assert [*map(unlike, ours)] == [*map(unlike, theirs)]
                failed = [slot for slot, each in enumerate(ours) if each and each.done]
                for pool in (threads, others):
                    await pool.reset_batch(slots=failed)

    play(main)


def test_process_backend_many_workers_start_a_few_at_a_time(monkeypatch):
    starting, most = 0, []
    start = processes.ProcessLink.start

    async def counted(link):
        nonlocal starting
        starting += 1
        most.append(starting)
        await start(link)
        starting -= 1

    monkeypatch.setattr(processes, "usable_cores", lambda: 1)
    monkeypatch.setattr(processes.ProcessLink, "start", counted)

    async def main():
        async with new_pool(5, 5):
            pass

    play(main)
    assert max(most) == 2


def test_process_backend_a_worker_that_does_not_start_is_an_error_of_open(monkeypatch):
    monkeypatch.setattr(processes, "PROGRAM", "raise SystemExit(5)")

    async def main():
        with pytest.raises(EnvError, match="exited with code 5 before it was ready"):
            async with new_pool(1):
                pass

    play(main)
