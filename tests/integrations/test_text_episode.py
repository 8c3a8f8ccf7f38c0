"""`TextEpisode`: an environment that is played with texts."""

import asyncio
import threading

import pytest

from guerdon import Action
from guerdon.errors import EnvError, InvalidActionError, InvalidArgumentError
from guerdon.integrations.text_episode import TextEpisode, read_action_text
from trainers.locks import Lock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_text_episode_plays_an_environment_and_closes_it():
    async with TextEpisode.open(Lock) as episode:
        assert await episode.reset({"seed": 37}) == "first dial"
        texts = [await episode.step(text) for text in ("3", "5", '{"digit": 7}')]
    assert texts == ["click", "nothing", "click"]
    assert (episode.rewards, episode.done) == ([1.0, 0.0, 1.0], True)
    assert episode.components[1] == {"rubric_0": 0.0}
    assert episode.fingerprint == episode.environment.rubric.fingerprint()
    assert episode.environment.is_closed


async def test_text_episode_closes_the_environment_and_ends_its_thread_if_cancelled_twice():
    opened = []

    async def play():
        async with TextEpisode.open(Lock) as episode:
            await episode.reset({"seed": 37})
            opened.append(episode.environment)
            await asyncio.sleep(60)

    task = asyncio.create_task(play())
    while not opened:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # while it closes the environment
    with pytest.raises(asyncio.CancelledError):
        await task
    assert opened[0].is_closed
    for thread in threading.enumerate():
        if thread.name == "guerdon-episode":
            thread.join(5)  # without `close`, an idle thread lives for 10 s
            assert not thread.is_alive()


async def test_text_episode_uses_to_action_and_observation_text():
    def observation_text(observation):
        return observation.text.upper()

    async with TextEpisode.open(
        Lock, to_action=lambda text: {"digit": len(text)}, observation_text=observation_text
    ) as e:
        assert await e.reset({"seed": 37}) == "FIRST DIAL"
        assert await e.step("abc") == "CLICK"


async def test_text_episode_step_raises_if_the_reward_fails_and_closes_the_environment():
    async with TextEpisode.open(Lock) as episode:
        await episode.reset({"seed": 37})
        await episode.step("3")
        with pytest.raises(EnvError, match=r"the reward of step 1 failed: .*the scale is broken"):
            await episode.step("9")
    assert episode.rewards == [1.0]
    assert episode.environment.is_closed


async def test_text_episode_reset_refuses_unknown_arguments():
    class Strict(Lock):
        def reset(self, seed=0, episode_id=None):
            return super().reset(seed)

    async with TextEpisode.open(Strict) as episode:
        with pytest.raises(InvalidArgumentError, match="takes no 'level'"):
            await episode.reset({"seed": 37, "level": 2})


async def test_text_episode_raises_what_the_factory_raises():
    def broken():
        raise OSError("no environment")

    with pytest.raises(OSError, match="no environment"):
        async with TextEpisode.open(broken):
            pass


async def test_read_action_text_reads_an_object_or_the_only_required_field():
    class Write(Action):
        code: str
        language: str = "python"

    class Move(Action):
        row: int
        column: int

    given = '{"code": "x", "language": "c"}'
    assert read_action_text(Write, given) == {"code": "x", "language": "c"}
    assert read_action_text(Write, '{"x": 1}') == {"code": '{"x": 1}'}
    for text in ("1, 2", '{"row": 1, "height": 2}'):
        with pytest.raises(InvalidActionError, match="a JSON object with the fields"):
            read_action_text(Move, text)
