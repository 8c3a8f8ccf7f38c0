"""Caches: bounded, shared by threads and processes, and never in the way."""

import asyncio
import contextlib
import copy
import gc
import multiprocessing
import pickle
import sqlite3
import subprocess
import sys
import threading

import pytest

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.judge.cache import MemoryCache, SqliteCache, cache_of


@pytest.fixture(params=["memory", "sqlite"])
def cache(request, tmp_path):
    made = MemoryCache(3) if request.param == "memory" else SqliteCache(tmp_path / "cache", 3)
    yield made
    if isinstance(made, SqliteCache):
        made.close()


def test_cache_returns_what_was_put(cache):
    assert cache.get("key") is None
    cache.put("key", "ä")
    cache.put("key", "b")
    assert cache.get("key") == "b"


def test_memory_cache_removes_the_least_recently_used_first():
    cache = MemoryCache(3)
    for key in "abc":
        cache.put(key, key)
    assert cache.get("a") == "a"
    cache.put("d", "d")
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


def test_sqlite_cache_removes_the_oldest_first(tmp_path):
    cache = SqliteCache(tmp_path / "cache", 3)
    for key in "abcd":
        cache.put(key, key)
    assert [key for key in "abcd" if cache.get(key)] == ["b", "c", "d"]
    cache.close()


def test_copies_of_a_cache_are_the_cache_itself(cache):
    assert copy.copy(cache) is copy.deepcopy(cache) is cache


def test_cache_works_in_many_threads(cache):
    def use(number):
        for turn in range(200):
            cache.put(str((number + turn) % 7), "x")
            assert cache.get(str(turn % 7)) in (None, "x")

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(cache.get(str(key)) is not None for key in range(7)) == 3


def test_cache_fetch_asks_once_at_the_same_time(cache):
    asked = []

    async def ask():
        asked.append(1)
        await asyncio.sleep(0)
        return "answer"

    async def main():
        return await asyncio.gather(*(cache.fetch("key", ask) for _ in range(10)))

    assert asyncio.run(main()) == ["answer"] * 10
    assert asyncio.run(cache.fetch("key", ask)) == "answer"
    assert len(asked) == 1


def test_cache_fetch_raises_for_all_and_stores_nothing(cache):
    asked = []

    async def fail():
        asked.append(1)
        raise OSError("down")

    async def main():
        return await asyncio.gather(
            *(cache.fetch("key", fail) for _ in range(3)), return_exceptions=True
        )

    assert [str(error) for error in asyncio.run(main())] == ["down"] * 3
    assert cache.get("key") is None
    with pytest.raises(OSError, match="down"):
        asyncio.run(cache.fetch("key", fail))
    assert len(asked) == 2


def test_cache_fetch_that_is_cancelled_leaves_the_others(cache):
    async def main():
        released, asked = asyncio.Event(), []

        async def ask():
            asked.append(1)
            await released.wait()
            return "answer"

        first, second = (asyncio.ensure_future(cache.fetch("key", ask)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        released.set()
        return await asyncio.gather(first, second, return_exceptions=True), asked

    (first, second), asked = asyncio.run(main())
    assert isinstance(first, asyncio.CancelledError)
    assert (second, asked) == ("answer", [1])


def test_cache_fetch_that_is_cancelled_last_ends_the_question(cache):
    async def main():
        begun, ended = asyncio.Event(), asyncio.Event()

        async def ask():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        task = asyncio.ensure_future(cache.fetch("key", ask))
        await begun.wait()
        task.cancel()
        await asyncio.wait_for(ended.wait(), 10)
        return await cache.fetch("key", _answer)

    assert asyncio.run(main()) == "answer"


def test_cache_fetch_ignores_an_older_question_that_ends_late():
    cache = MemoryCache()

    async def main():
        asked, ending, released = [], asyncio.Event(), asyncio.Event()

        async def ask():
            asked.append(1)
            try:
                await released.wait()
            except asyncio.CancelledError:
                await ending.wait()
                raise
            return "answer"

        async def begin():
            task = asyncio.ensure_future(cache.fetch("key", ask))
            await pause()
            return task

        async def pause():
            for _ in range(5):
                await asyncio.sleep(0)

        (await begin()).cancel()
        second = await begin()
        ending.set()
        await pause()
        third = await begin()
        released.set()
        return await asyncio.gather(second, third), asked

    assert asyncio.run(main()) == (["answer", "answer"], [1, 1])


async def _answer():
    return "answer"


def test_sqlite_cache_keeps_answers_for_later(tmp_path):
    cache = SqliteCache(tmp_path / "cache")
    cache.put("key", "answer")
    travelled = pickle.loads(pickle.dumps(cache))
    cache.close()
    assert travelled.get("key") == "answer"
    travelled.close()
    assert cache.get("key") == "answer"  # opened again
    cache.close()


def test_memory_cache_is_empty_when_unpickled():
    cache = MemoryCache(5)
    cache.put("key", "answer")
    again = pickle.loads(pickle.dumps(cache))
    assert (again.max_entries, len(again), len(cache)) == (5, 0, 1)


def _use(cache, number):
    for turn in range(20):
        cache.put(f"{number}-{turn}", str(turn))
    assert cache.get("before") == "the fork"
    cache.close()


@pytest.mark.edge
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_sqlite_cache_is_shared_by_processes(tmp_path, start):
    cache = SqliteCache(tmp_path / "cache")
    cache.put("before", "the fork")
    context = multiprocessing.get_context(start)
    processes = [context.Process(target=_use, args=(cache, number)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    kept = [cache.get(f"{number}-{turn}") for number in range(2) for turn in range(20)]
    assert kept == [str(turn) for _ in range(2) for turn in range(20)]
    cache.close()


def test_sqlite_cache_is_bounded(tmp_path):
    cache = SqliteCache(tmp_path / "cache", 200)
    for number in range(300):
        cache.put(str(number), "x")
    with sqlite3.connect(tmp_path / "cache") as database:
        (count,) = database.execute("SELECT count(*) FROM guerdon_answers").fetchone()
    database.close()
    cache.close()
    assert 200 <= count <= 202


def test_sqlite_cache_logs_a_failure_and_asks(tmp_path, caplog):
    cache = SqliteCache(tmp_path / "cache", 10)
    with sqlite3.connect(tmp_path / "cache") as database:
        database.execute("DROP TABLE guerdon_answers")
    database.close()
    assert cache.get("key") is None
    assert asyncio.run(cache.fetch("key", _answer)) == "answer"
    assert "no such table" in caplog.text
    cache.close()


@pytest.fixture
def locked(tmp_path):
    """A cache in a file, and a connection that has locked it."""
    cache = SqliteCache(tmp_path / "cache")
    locker = sqlite3.connect(cache.path, isolation_level=None)
    locker.execute("BEGIN EXCLUSIVE")
    yield cache, locker
    locker.close()
    cache.close()


def test_sqlite_cache_fetch_lets_its_event_loop_run_while_the_file_is_locked(locked, caplog):
    cache, locker = locked

    async def main():
        asked = asyncio.Event()

        async def ask():
            asked.set()
            return "answer"

        fetching = asyncio.ensure_future(cache.fetch("key", ask))
        await asked.wait()
        await asyncio.sleep(0)
        locker.execute("ROLLBACK")  # only runs in time if storing doesn't block this loop
        return await fetching

    assert asyncio.run(main()) == "answer"
    assert (cache.get("key"), caplog.text) == ("answer", "")


def test_sqlite_cache_that_stays_locked_is_skipped_until_it_works(locked, caplog, monkeypatch):
    monkeypatch.setattr("guerdon.rubrics.judge.cache.LOCKED_S", 0.01)
    cache, locker = locked
    cache.close()  # the next use connects with that timeout
    tried, insert = [], cache._insert
    monkeypatch.setattr(cache, "_insert", lambda *entry: tried.append(entry) or insert(*entry))

    async def fetch_many():
        return await asyncio.gather(*(cache.fetch(f"{number}", _answer) for number in range(32)))

    assert asyncio.run(fetch_many()) == ["answer"] * 32
    assert caplog.text.count("skipping the cache") == 1
    assert "locked" in caplog.text
    assert len(tried) == 1  # no other one waits for the lock
    locker.execute("ROLLBACK")
    assert asyncio.run(fetch_many()) == ["answer"] * 32
    assert cache.get("0") is None  # it is still skipped
    cache._skipped_until = 0.0
    assert asyncio.run(fetch_many()) == ["answer"] * 32
    assert cache.get("0") == "answer"
    locker.execute("BEGIN EXCLUSIVE")
    cache.put("0", "another")
    assert caplog.text.count("skipping the cache") == 2


def test_sqlite_cache_of_a_file_that_hangs_is_skipped(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("guerdon.rubrics.judge.cache.DEADLINE_S", 0.01)
    cache, released = SqliteCache(tmp_path / "cache"), threading.Event()
    monkeypatch.setattr(cache, "_select", lambda key: released.wait(60))
    assert cache.get("key") is None
    assert asyncio.run(cache.fetch("key", _answer)) == "answer"
    assert caplog.text.count("skipping the cache") == 1
    released.set()
    cache.close()


def test_sqlite_cache_fetch_waits_its_turn_for_a_file_that_works(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("guerdon.rubrics.judge.cache.DEADLINE_S", 0.3)
    monkeypatch.setattr("guerdon.rubrics.judge.cache.MANY", 1)
    cache, select = SqliteCache(tmp_path / "cache"), SqliteCache._select
    never = threading.Event()
    monkeypatch.setattr(cache, "_select", lambda key: never.wait(0.05) or select(cache, key))

    async def main():
        return await asyncio.gather(*(cache.fetch(f"{number}", _answer) for number in range(9)))

    assert asyncio.run(main()) == ["answer"] * 9
    assert [cache.get(f"{number}") for number in range(9)] == ["answer"] * 9
    assert caplog.text == ""
    cache.close()


def test_sqlite_cache_of_a_file_that_hangs_lets_the_process_end(tmp_path):
    program = """
import sys, time
from guerdon.rubrics.judge import cache

class Hanging(cache.SqliteCache):
    def _select(self, key):
        time.sleep(1000)

cache.DEADLINE_S = 0.1
print(Hanging(sys.argv[1]).get("a"))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "cache")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "None\n"


def test_sqlite_cache_can_be_made_of_a_file_that_hangs(tmp_path, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr("guerdon.rubrics.judge.cache.DEADLINE_S", 0.01)
    monkeypatch.setattr(SqliteCache, "_connection", lambda cache: released.wait(60))
    cache = SqliteCache(tmp_path / "cache")
    assert asyncio.run(cache.fetch("key", _answer)) == "answer"
    assert not released.is_set()
    released.set()
    cache.close()


def test_sqlite_cache_can_be_made_while_another_process_creates_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("guerdon.rubrics.judge.cache.LOCKED_S", 0.01)
    with contextlib.closing(sqlite3.connect(tmp_path / "cache", isolation_level=None)) as creator:
        creator.execute("BEGIN EXCLUSIVE")
        cache = SqliteCache(tmp_path / "cache")
        assert asyncio.run(cache.fetch("key", _answer)) == "answer"
    cache.close()


def test_sqlite_cache_closes_its_file_when_collected(tmp_path):
    cache = SqliteCache(tmp_path / "cache")
    cache.put("key", "answer")
    database = cache._connection()
    del cache
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


@pytest.mark.parametrize("bytes_there", [b"not a database" * 100, None])
def test_sqlite_cache_rejects_another_file(tmp_path, bytes_there):
    path = tmp_path / "file"
    if bytes_there is None:
        path = tmp_path / "no" / "such" / "folder"
    else:
        path.write_bytes(bytes_there)
    with pytest.raises(InvalidArgumentError, match="can't open the cache"):
        SqliteCache(path)


@pytest.mark.parametrize("entries", [0, -1, 1.5, True, "9"])
def test_memory_cache_rejects_an_invalid_size(entries):
    with pytest.raises(InvalidArgumentError, match="max_entries"):
        MemoryCache(entries)


@pytest.mark.parametrize("argument", [5, "", b"memory", True])
def test_cache_of_rejects_other_arguments(argument):
    with pytest.raises(InvalidArgumentError, match="`cache` must be"):
        cache_of(argument)
    assert cache_of(None) is None
