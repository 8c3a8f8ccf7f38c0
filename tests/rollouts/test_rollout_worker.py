"""Playing episodes: in environments of every kind, with everything that can go wrong."""

import asyncio
import json
import re
import threading
from dataclasses import dataclass

import anyio
import pytest
from examples.connect4.environment import Connect4Environment

from guerdon import (
    Action,
    Environment,
    GenericEnvClient,
    InvalidArgumentError,
    Message,
    NumericAnswer,
    Observation,
    PolicyError,
    Rollout,
    Rubric,
    State,
    create_app,
    score_rollouts,
)
from guerdon.rollouts.policies import PolicyOutput, ReplayPolicy, ScriptedPolicy
from guerdon.rollouts.rollout_worker import RLRolloutWorker
from tests.envs.client.servers import SOON, Echo, EchoState, Served


class Guess(Action):
    number: int


class Hint(Observation):
    text: str
    secret: int = 0


class Close(Rubric):
    def forward(self, action, observation):
        return 1 / (1 + abs(action.number - observation.secret))


class Guessing(Environment[Guess, Hint, State]):
    """Guess the number, which the seed decides."""

    def __init__(self):
        super().__init__(rubric=Close())
        self.episode = State()
        self.secret = 0
        self.closed = 0

    def reset(self, seed=None, episode_id=None, more=0, **kwargs):
        self.secret = (seed or 7) + more
        return Hint(text="Which number?", metadata={"episode": episode_id, "lock": object()})

    def step(self, action, timeout_s=None, **kwargs):
        if action.number == 13:
            raise OSError("the game is down")
        right = action.number == self.secret
        text = "yes" if right else "no"
        return self.score(action, Hint(text=text, secret=self.secret, done=right))

    @property
    def state(self):
        return self.episode

    def close(self):
        self.closed += 1


class AsyncGuessing(Guessing):
    async def reset_async(self, seed=None, **kwargs):
        await asyncio.sleep(0)
        return Guessing.reset(self, seed, **kwargs)

    async def step_async(self, action, **kwargs):
        await asyncio.sleep(0)
        return Guessing.step(self, action)


def guesses(*numbers):
    return ScriptedPolicy([{"number": number} for number in numbers])


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, SOON))


def play(env, policy, task=None, *, max_steps=10, seed=None, rollout_id=None, **options):
    worker = RLRolloutWorker(env, policy, max_steps=max_steps, **options)
    return run(worker.run(task, seed=seed, rollout_id=rollout_id))


def texts(record):
    return [(message.role, message.text) for message in record.messages]


# An episode


@pytest.mark.parametrize("kind", [Guessing, AsyncGuessing])
def test_an_episode_is_recorded_step_by_step(kind):
    record = play(kind, guesses(8, 7), rollout_id="e1")
    assert (record.id, record.ended, record.error) == ("e1", "done", None)
    assert texts(record) == [
        ("user", "Which number?"),
        ("assistant", '{"number": 8}'),
        ("user", "no"),
        ("assistant", '{"number": 7}'),
        ("user", "yes"),
    ]
    first, second = record.steps
    assert first.observation_data == {
        "text": "Which number?",
        "secret": 0,
        "metadata": {"episode": "e1"},  # the lock is nothing that JSON can hold
    }
    assert first.action_taken == {"number": 8}
    assert first.raw_policy_output == '{"number": 8}'
    assert (first.is_done, second.is_done) == (False, True)
    assert record.env_rewards == [0.5, 1.0]
    assert second.step_info["assistant_turn_index"] == 1
    assert second.step_info["env_metadata"] == {"reward_components": {}}
    assert second.observation_data["text"] == "no"


def test_messages_are_shared_between_steps():
    record = play(Guessing, guesses(8, 7))
    first, second = record.steps
    assert [len(step.resulting_messages_history) for step in record.steps] == [3, 5]
    for history in (first.resulting_messages_history, second.resulting_messages_history):
        for mine, whole in zip(history, record.messages, strict=False):
            assert mine is whole


def test_a_row_is_scored_as_any_rollout_is():
    policy = ScriptedPolicy([PolicyOutput({"number": 7}, "A: 7")])
    record = play(Guessing, policy, {"id": "q", "ground_truth": "7", "level": 2})
    row = json.loads(json.dumps(record.to_row(), allow_nan=False))
    assert (row["group"], row["level"], row["ground_truth"]) == ("q", 2, "7")
    [scored] = score_rollouts(NumericAnswer(), [Rollout.from_row(row)])
    assert scored["score"] == 1.0


def test_an_episode_is_played_again_from_its_record():
    policy = guesses(8, 9, 3)
    record = play(Connect4Environment, ScriptedPolicy([{"column": 3}, {"column": 2}]), seed=5)
    assert record.ended == "error"  # the script ended
    again = play(Connect4Environment, ReplayPolicy(record), seed=5, max_steps=2)
    data = [step.observation_data for step in again.steps]
    assert [{**each, "metadata": 0} for each in data] == [
        {**step.observation_data, "metadata": 0} for step in record.steps
    ]
    assert policy is not None


def test_what_the_policy_tells_is_recorded():
    policy = ScriptedPolicy([PolicyOutput({"number": 7}, "seven!", [-0.5], 0.25)])
    [step] = play(Guessing, policy).steps
    assert step.policy_logprobs == [-0.5]
    assert step.policy_value_estimate == 0.25


def test_run_sync_awaits_nothing():
    record = RLRolloutWorker(Guessing, guesses(7), max_steps=3).run_sync(seed=7)
    assert (record.ended, record.seed) == ("done", 7)


def test_run_sync_of_a_group():
    worker = RLRolloutWorker(Guessing, guesses(7), max_steps=3)
    assert [record.ended for record in worker.run_group_sync(None, 2, seed=7)] == ["done"] * 2


# How it ends


def test_the_step_limit_ends_an_episode():
    record = play(Guessing, guesses(1, 2, 3), max_steps=2)
    assert (record.ended, len(record.steps), record.steps[-1].is_done) == ("max_steps", 2, False)


def test_done_at_the_step_limit_is_done():
    assert play(Guessing, guesses(7), max_steps=1).ended == "done"


class Stop:
    type = "terminate"


@pytest.mark.parametrize("stop", [{"type": "terminate"}, Stop()], ids=["dict", "object"])
def test_a_terminating_action_is_recorded_and_not_sent(stop):
    environment = Guessing()
    record = play(environment, ScriptedPolicy([{"number": 1}, PolicyOutput(stop, "enough")]))
    assert record.ended == "terminate"
    assert [step.is_done for step in record.steps] == [False, True]
    assert record.env_rewards == [pytest.approx(1 / 7), None]
    assert texts(record)[-1] == ("assistant", "enough")


def test_to_action_may_terminate():
    def read(action):
        return {"type": "terminate"} if action["content"] == "stop" else {"number": 1}

    record = play(Guessing, ScriptedPolicy(["go", "stop"]), to_action=read)
    assert (record.ended, len(record.steps)) == ("terminate", 2)


def test_a_pattern_ends_the_episode_after_its_step():
    policy = ScriptedPolicy([PolicyOutput({"number": n}, f"{n} FINAL") for n in (1, 2)])
    record = play(Guessing, policy, stop_pattern=r"2\s+FINAL")
    assert (record.ended, len(record.steps)) == ("pattern", 2)
    assert record.env_rewards[-1] == pytest.approx(1 / 6)
    assert record.steps[-1].is_done is False


def test_a_compiled_pattern_is_taken():
    record = play(Guessing, guesses(1), stop_pattern=re.compile("NUMBER", re.IGNORECASE))
    assert record.ended == "pattern"


# What goes wrong


def test_a_step_that_fails_is_recorded_with_its_error():
    record = play(Guessing, guesses(8, 13))
    assert record.ended == "error"
    assert record.error == "step 1: OSError: the game is down"
    assert [step.step_info.get("error") for step in record.steps] == [None, record.error]
    assert record.env_rewards == [0.5, None]
    assert texts(record)[-1] == ("assistant", '{"number": 13}')
    assert record.steps[-1].resulting_messages_history == record.messages


def test_a_policy_that_fails_leaves_the_steps_so_far():
    record = play(Guessing, guesses(8))
    assert record.ended == "error"
    assert "the policy at step 1: PolicyError: the script has 1 turns" in record.error
    assert [step.step_info.get("error") for step in record.steps] == [None]


def test_an_action_that_is_none_is_refused_with_a_reason():
    record = play(Guessing, ScriptedPolicy([{"nummer": 8}]))
    assert record.ended == "error"
    assert "is no Guess: number: Field required" in record.error


def test_a_reset_that_fails():
    class Broken(Guessing):
        def reset(self, seed=None, **kwargs):
            raise OSError("no board")

    record = play(Broken, guesses(8))
    assert (record.ended, record.error, record.steps) == ("error", "reset: OSError: no board", [])


def test_an_environment_that_cant_be_made():
    def factory():
        raise OSError("no room")

    record = play(factory, guesses(8))
    assert record.error == "making the environment: OSError: no room"


def test_what_a_factory_gives_is_an_environment():
    assert "5 is no environment" in play(lambda: 5, guesses(8)).error


def test_an_environment_that_calls_sys_exit_ends_its_episode_only():
    class Exits(Guessing):
        def step(self, action, **kwargs):
            raise SystemExit(3)

    assert "sys.exit(3)" in play(Exits, guesses(8)).error


def test_a_rubric_that_fails_ends_nothing():
    class Down(Rubric):
        def forward(self, action, observation):
            raise OSError("the judge is down")

    class Unjudged(Guessing):
        def __init__(self):
            super().__init__()
            self.rubric = Down()

    record = play(Unjudged, guesses(8, 7))
    assert record.ended == "done"
    assert record.env_rewards == [None, None]
    assert "the judge is down" in record.steps[0].step_info["env_metadata"]["reward_error"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(None, "gave None", id="nothing"),
        pytest.param(({}, "", None), "tuple of 3", id="three"),
        pytest.param("column 3", "gave 'column 3'", id="text"),
        pytest.param([{}, "", None, None], "list of 4", id="list"),
        pytest.param(({}, None, None, None), "raw output is None", id="no text"),
        pytest.param(({}, "", None, float("nan")), "value estimate is nan", id="NaN"),
    ],
)
def test_what_is_no_output_is_a_policy_error(given, said):
    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            return given

    record = play(Guessing, Policy())
    assert record.ended == "error"
    assert "PolicyError" in record.error
    assert said in record.error
    assert record.steps == []


def test_a_policy_that_isnt_async_is_a_policy_error():
    class Policy:
        def get_action(self, observation, available_tools_specs=None):
            return {"number": 7}, "", None, None

    assert "it is async" in play(Guessing, Policy()).error


def test_any_tuple_of_four_is_an_output():
    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            return {"number": 7}, "seven", None, 1

    assert play(Guessing, Policy()).ended == "done"


def test_a_policy_that_hangs_is_given_up():
    ended = []

    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("policy")

    record = play(Guessing, Policy(), policy_timeout=0.05)
    assert record.error == "the policy at step 0: PolicyError: the policy took longer than 0.05 s"
    assert ended == ["policy"]


class Hangs(Guessing):
    """Blocks in a step on 1, until the test lets it go."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.freed = threading.Event()

    def step(self, action, **kwargs):
        if action.number == 1:
            self.begun.set()
            assert self.gate.wait(SOON)
        return super().step(action)

    def close(self):
        super().close()
        self.freed.set()


class Makes:
    """A factory that keeps what it makes."""

    def __init__(self, kind):
        self.kind = kind
        self.made = []

    def __call__(self):
        self.made.append(self.kind())
        return self.made[-1]


def test_an_environment_that_hangs_ends_the_episode_and_is_closed_when_it_comes_back():
    factory = Makes(Hangs)
    record = play(factory, guesses(1), step_timeout=0.1)
    assert record.ended == "error"
    assert "step 0: EnvTimeoutError: step took longer than 0.1 s" in record.error
    [made] = factory.made
    assert made.closed == 0
    made.gate.set()
    assert made.freed.wait(SOON)
    assert made.closed == 1


def test_an_environment_of_the_callers_that_hangs_is_lent_to_nobody():
    environment = Hangs()
    worker = RLRolloutWorker(environment, guesses(1), max_steps=1, step_timeout=0.1)
    assert "EnvTimeoutError" in run(worker.run()).error
    with pytest.raises(InvalidArgumentError, match="or hangs in one that was given up"):
        run(worker.run())
    environment.gate.set()
    environment.gate.wait()
    for thread in threading.enumerate():
        if thread.name == "guerdon-rollout":
            thread.join(SOON)
    assert run(worker.run()).ended == "max_steps"
    assert environment.closed == 0


def test_an_async_environment_that_hangs_is_cancelled_and_closed():
    class AsyncHangs(Guessing):
        async def step_async(self, action, **kwargs):
            await asyncio.Event().wait()

    factory = Makes(AsyncHangs)
    record = play(factory, guesses(1), step_timeout=0.05)
    assert "step took longer than 0.05 s" in record.error
    assert factory.made[0].closed == 1


def test_closing_that_fails_is_logged_and_spoils_nothing(caplog):
    class Sticky(Guessing):
        def close(self):
            raise OSError("stuck")

    assert play(Sticky, guesses(7)).ended == "done"
    assert "closing Sticky failed: OSError: stuck" in caplog.text


# Cancellation


async def begun(event):
    assert await asyncio.to_thread(event.wait, SOON)


def test_a_cancelled_episode_closes_the_environment_it_made():
    class Waits:
        def __init__(self):
            self.asked = asyncio.Event()

        async def get_action(self, observation, available_tools_specs=None):
            self.asked.set()
            await asyncio.Event().wait()

    async def main():
        policy, factory = Waits(), Makes(Guessing)
        task = asyncio.ensure_future(RLRolloutWorker(factory, policy, max_steps=1).run())
        await policy.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert factory.made[0].closed == 1

    run(main())


def test_a_cancelled_scope_closes_them_too():
    async def main():
        factory = Makes(Guessing)
        asked = asyncio.Event()

        class Waits:
            async def get_action(self, observation, available_tools_specs=None):
                asked.set()
                await asyncio.Event().wait()

        worker = RLRolloutWorker(factory, Waits(), max_steps=1)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run_group, None, 3)
            await asked.wait()
            group.cancel_scope.cancel()
        assert [made.closed for made in factory.made] == [1] * len(factory.made)

    run(main())


def test_an_episode_cancelled_in_a_blocking_step_leaves_nothing_open():
    async def main():
        factory = Makes(Hangs)
        task = asyncio.ensure_future(RLRolloutWorker(factory, guesses(1), max_steps=1).run())
        while not factory.made:
            await asyncio.sleep(0)
        [made] = factory.made
        await begun(made.begun)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made.closed == 0
        made.gate.set()
        await begun(made.freed)

    run(main())


def test_cancelling_while_it_is_made_closes_what_was_made():
    async def main():
        begin, go, made = threading.Event(), threading.Event(), []

        def factory():
            begin.set()
            assert go.wait(SOON)
            made.append(Hangs())
            return made[0]

        task = asyncio.ensure_future(RLRolloutWorker(factory, guesses(1), max_steps=1).run())
        await begun(begin)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        while not made:
            await asyncio.sleep(0)
        await begun(made[0].freed)

    run(main())


# Groups


def test_a_group_is_of_one_task_and_seed():
    factory = Makes(Guessing)
    worker = RLRolloutWorker(factory, guesses(1, 5), max_steps=5)
    records = run(worker.run_group({"id": "q7"}, 3, seed=5))
    assert [record.id for record in records] == ["q7-0", "q7-1", "q7-2"]
    assert {record.group for record in records} == {"q7"}
    assert {record.seed for record in records} == {5}
    assert [record.ended for record in records] == ["done"] * 3
    assert [made.closed for made in factory.made] == [1, 1, 1]


def test_a_group_without_a_seed_and_a_name_gets_one_of_each():
    worker = RLRolloutWorker(Guessing, guesses(1), max_steps=1)
    first, second = run(worker.run_group("?", 2)), run(worker.run_group("?", 2))
    assert first[0].group == first[1].group != second[0].group
    assert first[0].seed == first[1].seed is not None


def test_a_group_may_be_named():
    worker = RLRolloutWorker(Guessing, guesses(1), max_steps=1)
    [record] = run(worker.run_group({"id": "q7"}, 1, group="epoch-2/q7"))
    assert (record.id, record.group) == ("epoch-2/q7-0", "epoch-2/q7")


def test_the_episodes_of_a_group_run_at_the_same_time():
    barrier = threading.Barrier(4, timeout=SOON)

    class Meets(Guessing):
        def step(self, action, **kwargs):
            barrier.wait()
            return super().step(action)

    worker = RLRolloutWorker(Meets, guesses(1), max_steps=1)
    assert [each.ended for each in run(worker.run_group(None, 4))] == ["max_steps"] * 4


def test_an_episode_that_fails_doesnt_disturb_the_others():
    numbers = iter(range(3))

    def factory():
        if next(numbers) == 1:
            raise OSError("no room")
        return Guessing()

    records = run(RLRolloutWorker(factory, guesses(8, 7), max_steps=5).run_group(None, 3, seed=7))
    assert sorted(record.ended for record in records) == ["done", "done", "error"]


def test_a_group_needs_more_than_one_environment():
    worker = RLRolloutWorker(Guessing(), guesses(7), max_steps=5)
    with pytest.raises(InvalidArgumentError, match="2 episodes at once need 2 environments"):
        run(worker.run_group(None, 2))
    assert [record.ended for record in run(worker.run_group(None, 1, seed=7))] == ["done"]


def test_an_environment_plays_one_episode_at_a_time():
    async def main():
        environment = Hangs()
        worker = RLRolloutWorker(environment, guesses(1), max_steps=1)
        first = asyncio.ensure_future(worker.run())
        await begun(environment.begun)
        with pytest.raises(InvalidArgumentError, match="plays an episode"):
            await worker.run()
        environment.gate.set()
        assert (await first).ended == "max_steps"
        assert (await worker.run()).ended == "max_steps"
        assert environment.closed == 0

    run(main())


# Tasks and conversations


def test_a_prompt_begins_the_conversation():
    record = play(Guessing, guesses(7), "Guess a number under 10.")
    assert texts(record)[:2] == [
        ("user", "Guess a number under 10."),
        ("assistant", '{"number": 7}'),
    ]


def test_instructions_are_followed_by_the_first_observation():
    record = play(Guessing, guesses(7), {"messages": [{"role": "system", "content": "Be brief."}]})
    assert texts(record)[:2] == [("system", "Be brief."), ("user", "Which number?")]


def test_examples_count_as_turns():
    said = [("user", "Guess 1."), ("assistant", '{"number": 1}'), ("user", "Guess.")]
    task = {"messages": [{"role": role, "content": content} for role, content in said]}
    policy = ScriptedPolicy([{"number": 8}, {"number": 7}], first_turn=1)
    record = play(Guessing, policy, task)
    assert record.ended == "done"
    assert [step.step_info["assistant_turn_index"] for step in record.steps] == [1, 2]
    assert [step.system_step_index for step in record.steps] == [0, 1]


def test_a_task_reaches_the_reset():
    record = play(Guessing, guesses(9), {"reset": {"more": 2, "unknown": 1}}, seed=7)
    assert record.ended == "done"


def test_an_answer_of_ones_own_goes_before_the_tasks():
    worker = RLRolloutWorker(Guessing, guesses(7), max_steps=1)
    task = {"ground_truth": "6"}
    assert run(worker.run(task)).ground_truth == "6"
    assert run(worker.run(task, ground_truth="7")).ground_truth == "7"


def test_messages_of_ones_own():
    def said(observation, calls):
        assert calls == []
        return [Message(role="user", content=f"<{observation.text}>")]

    record = play(Guessing, guesses(7), to_messages=said)
    assert [text for role, text in texts(record) if role == "user"] == ["<Which number?>", "<yes>"]


def test_each_tool_call_is_answered():
    calls = [{"type": "tool_call", "name": "guess", "arguments": {"number": n}} for n in (7, 8)]
    policy = ScriptedPolicy([{**calls[0], "id": "a"}, {"type": "tool_calls", "calls": calls}])

    def read(action):
        return {"number": 1}

    record = play(Guessing, policy, to_action=read, max_steps=2)
    first, answer, second, *answers = [message.to_openai() for message in record.messages[1:]]
    function = {"name": "guess", "arguments": '{"number": 7}'}
    assert first["tool_calls"] == [{"id": "a", "type": "function", "function": function}]
    assert first["content"] is None
    assert answer == {"role": "tool", "content": "no", "tool_call_id": "a"}
    assert [call["id"] for call in second["tool_calls"]] == ["call_1_0", "call_1_1"]
    assert [each["tool_call_id"] for each in answers] == ["call_1_0", "call_1_1"]


class Listens:
    """Notes what it is given."""

    def __init__(self):
        self.given = []

    async def get_action(self, observation, available_tools_specs=None, *, messages=None):
        self.given.append((observation, available_tools_specs, messages))
        messages.append("nothing of the worker's")
        return {"number": 7}, "seven", None, None


def test_a_policy_is_given_observation_tools_and_conversation():
    policy = Listens()
    record = play(Guessing, policy, tools=[{"type": "function"}])
    [(observation, tools, messages)] = policy.given
    assert isinstance(observation, Hint)
    assert tools == [{"type": "function"}]
    assert messages[:-1] == record.messages[:1]
    assert len(record.messages) == 3  # a policy's list is its own


def test_tools_of_the_environment_are_told():
    class Equipped(Guessing):
        tools = ({"type": "function"},)

    policy = Listens()
    play(Equipped, policy)
    assert policy.given[0][1] == [{"type": "function"}]


def test_a_policy_with_any_keyword_is_given_the_conversation():
    class Wraps:
        async def get_action(self, observation, available_tools_specs=None, **kwargs):
            return await inner.get_action(observation, available_tools_specs, **kwargs)

    inner = Listens()
    assert play(Guessing, Wraps()).ended == "done"
    assert len(inner.given[0][2]) == 2


# Environments of others


class OpenEnvLike:
    """As OpenEnv has them: sync, with keywords."""

    def __init__(self):
        self.calls = []

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.calls.append(("reset", seed, kwargs, threading.current_thread().name))
        return {"text": "begin"}

    def step(self, action, timeout_s=None, **kwargs):
        self.calls.append(("step", action, timeout_s))
        return {"text": "end", "reward": True, "done": True, "metadata": {"k": 1}}

    def close(self):
        self.calls.append("close")


def test_a_sync_environment_runs_in_a_thread():
    factory = Makes(OpenEnvLike)
    record = play(factory, guesses(3), {"reset": {"level": 2}}, seed=5, step_timeout=9)
    assert record.ended == "done"
    assert record.env_rewards == [1.0]
    assert record.steps[0].step_info["env_metadata"] == {"k": 1}
    assert factory.made[0].calls == [
        ("reset", 5, {"level": 2}, "guerdon-rollout"),
        ("step", {"number": 3}, 9.0),
        "close",
    ]


@dataclass
class Result:
    observation: object
    reward: float | None = None
    done: bool = False


class AsyncClientLike:
    """As clients are: async, with results around observations, and awaited to connect."""

    def __init__(self):
        self.closed = False

    async def reset(self, **kwargs):
        return Result({"board": [kwargs["seed"]]})

    async def step(self, action):
        return Result({"board": [1]}, 0.5, True)

    async def close(self):
        self.closed = True

    def __await__(self):
        raise AssertionError("nobody awaits it")
        yield


async def connecting():
    return AsyncClientLike()


@pytest.mark.parametrize("factory", [AsyncClientLike, connecting], ids=["class", "async factory"])
def test_an_async_client_is_awaited(factory):
    record = play(factory, guesses(3), seed=5)
    assert (record.ended, record.error, record.env_rewards) == ("done", None, [0.5])
    assert texts(record)[0] == ("user", '{"board": [5]}')


def test_an_async_client_is_closed():
    factory = Makes(AsyncClientLike)
    play(factory, guesses(3), seed=5)
    assert factory.made[0].closed


def test_an_environment_that_takes_no_keywords_gets_none():
    class Bare:
        def reset(self):
            return "begin"

        def step(self, action):
            return {"reward": None, "done": True, "said": action}

    record = play(Bare, guesses(3), seed=5)
    assert record.ended == "done"
    assert texts(record)[0] == ("user", "begin")
    assert record.steps[0].observation_data == "begin"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(None, "step gave None", id="nothing"),
        pytest.param({"reward": 1.0}, "says whether it is done", id="no done"),
        pytest.param({"done": True, "reward": float("nan")}, "a reward of nan", id="NaN"),
        pytest.param({"done": True, "metadata": [1]}, "metadata that are no dict", id="metadata"),
    ],
)
def test_an_answer_that_is_none_ends_the_episode(answer, said):
    class Bare:
        def reset(self):
            return {}

        def step(self, action):
            return answer

    record = play(Bare, guesses(3))
    assert record.ended == "error"
    assert said in record.error


# Over the wire


@pytest.fixture(scope="module")
def echo():
    served = Served(create_app(Echo, env_name="the echo"))
    yield served.url
    served.stop()


def sayings(*words):
    return ScriptedPolicy([{"message": word} for word in words])


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_a_served_environment_is_played(echo, sync):
    def connect():
        client = GenericEnvClient(echo)
        return client.sync() if sync else client

    worker = RLRolloutWorker(connect, sayings("hi please", "bye"), max_steps=5)
    records = run(worker.run_group({"id": "e", "reset": {"level": 3}}, 2, seed=5))
    for record in records:
        assert (record.ended, record.error) == ("done", None)
        assert record.env_rewards == [1.0, 0.0]
        first = record.steps[0]
        assert first.observation_data["seed"] == 5
        assert first.observation_data["level"] == 3
        assert first.step_info["env_metadata"] == {"reward_components": {"polite": 1.0}}


def test_a_servers_error_is_told(echo):
    record = play(lambda: GenericEnvClient(echo), sayings("hi", "break"))
    assert record.ended == "error"
    assert "told to break" in record.error
    assert len(record.steps) == 2


def test_a_server_that_isnt_there_is_told():
    record = play(lambda: GenericEnvClient("http://127.0.0.1:1"), sayings("hi"))
    assert record.error.startswith("reset: ConnectionLostError")


def test_a_client_of_the_callers_stays_open(echo):
    async def main():
        async with GenericEnvClient(echo) as client:
            worker = RLRolloutWorker(client, sayings("bye"), max_steps=5)
            assert [(await worker.run()).ended for _ in range(2)] == ["done"] * 2
            await client.reset()

    run(main())


# What is refused


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, None])
def test_a_worker_needs_at_least_one_step(steps):
    with pytest.raises(InvalidArgumentError, match="max_steps is"):
        RLRolloutWorker(Guessing, guesses(1), max_steps=steps)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"env": "env"}, "'env' is no environment", id="env"),
        pytest.param({"policy": lambda o: o}, "is no policy", id="policy"),
        pytest.param({"policy": ScriptedPolicy}, "is no policy", id="class"),
        pytest.param({"stop_pattern": "("}, "no regular expression", id="pattern"),
        pytest.param({"step_timeout": 0}, "step_timeout is 0", id="step_timeout"),
        pytest.param({"policy_timeout": None}, "policy_timeout is None", id="policy_timeout"),
    ],
)
def test_what_cant_be_meant_is_refused(options, said):
    given = {"env": Guessing, "policy": guesses(1), **options}
    with pytest.raises(InvalidArgumentError, match=re.escape(said)):
        RLRolloutWorker(given.pop("env"), given.pop("policy"), max_steps=1, **given)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        pytest.param(5, "the task is 5", id="number"),
        pytest.param({"messages": [{"role": "nobody"}]}, "no messages", id="role"),
        pytest.param({"messages": ["hi"]}, "no messages", id="texts"),
        pytest.param({"messages": 5}, "no messages", id="no list"),
        pytest.param({"reset": 5}, "task['reset'] is 5", id="reset"),
    ],
)
def test_what_is_no_task_is_refused(task, said):
    with pytest.raises(InvalidArgumentError, match=re.escape(said)):
        play(Guessing, guesses(1), task)


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_a_group_is_of_at_least_one(n):
    worker = RLRolloutWorker(Guessing, guesses(1), max_steps=1)
    with pytest.raises(InvalidArgumentError, match="n is"):
        run(worker.run_group(None, n))
