"""The worker: groups, tasks, conversations, and what it refuses."""

import asyncio
import json
import re
import threading

import pytest

from guerdon import Message, Rollout, ToolEnvironment, ToolErrors, tool
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.playing.policies import ReplayPolicy, ScriptedPolicy
from guerdon.rollouts.playing.worker import RLRolloutWorker
from guerdon.types import CallToolAction, CallToolsAction
from tests.envs.client.servers import SOON
from tests.rollouts.playing.guessing import (
    AsyncGuessing,
    Guessing,
    Hangs,
    Hint,
    Makes,
    begun,
    guesses,
    play,
    run,
    texts,
)

# Groups


def test_run_group_plays_one_task_and_seed():
    factory = Makes(Guessing)
    worker = RLRolloutWorker(factory, guesses(1, 5), max_steps=5)
    records = run(worker.run_group({"id": "q7"}, 3, seed=5))
    assert [record.id for record in records] == ["q7:5-0", "q7:5-1", "q7:5-2"]
    assert {record.group for record in records} == {"q7:5"}
    assert {record.seed for record in records} == {5}
    assert [record.ended for record in records] == ["done"] * 3
    assert [made.closed for made in factory.made] == [1, 1, 1]


def test_run_group_makes_a_seed_and_a_name():
    worker = RLRolloutWorker(Guessing, guesses(1), max_steps=1)
    first, second = run(worker.run_group("?", 2)), run(worker.run_group("?", 2))
    assert first[0].group == first[1].group != second[0].group
    assert first[0].seed == first[1].seed is not None


def test_run_group_uses_the_given_name():
    worker = RLRolloutWorker(Guessing, guesses(1), max_steps=1)
    [record] = run(worker.run_group({"id": "q7"}, 1, group="epoch-2/q7"))
    assert (record.id, record.group) == ("epoch-2/q7-0", "epoch-2/q7")


def test_run_group_runs_episodes_concurrently():
    barrier = threading.Barrier(4, timeout=SOON)

    class Meets(Guessing):
        def step(self, action, **kwargs):
            barrier.wait()
            return super().step(action)

    worker = RLRolloutWorker(Meets, guesses(1), max_steps=1)
    assert [each.ended for each in run(worker.run_group(None, 4))] == ["max_steps"] * 4


def test_run_group_continues_after_a_failed_episode():
    numbers = iter(range(3))

    def factory():
        if next(numbers) == 1:
            raise OSError("no room")
        return Guessing()

    records = run(RLRolloutWorker(factory, guesses(8, 7), max_steps=5).run_group(None, 3, seed=7))
    assert sorted(record.ended for record in records) == ["done", "done", "error"]


def test_run_group_rejects_a_single_environment():
    worker = RLRolloutWorker(Guessing(), guesses(7), max_steps=5)
    with pytest.raises(InvalidArgumentError, match="2 concurrent episodes need 2 environments"):
        run(worker.run_group(None, 2))
    assert [record.ended for record in run(worker.run_group(None, 1, seed=7))] == ["done"]


def test_rollout_worker_rejects_two_episodes_in_one_environment():
    async def main():
        environment = Hangs()
        worker = RLRolloutWorker(environment, guesses(1), max_steps=1)
        first = asyncio.ensure_future(worker.run())
        await begun(environment.begun)
        with pytest.raises(InvalidArgumentError, match="already plays an episode"):
            await worker.run()
        environment.gate.set()
        assert (await first).ended == "max_steps"
        assert (await worker.run()).ended == "max_steps"
        assert environment.closed == 0

    run(main())


# Tasks and conversations


def test_rollout_worker_prompt_begins_the_conversation():
    record = play(Guessing, guesses(7), "Guess a number under 10.")
    assert texts(record)[:2] == [
        ("user", "Guess a number under 10."),
        ("assistant", '{"number": 7}'),
    ]


def test_rollout_worker_first_observation_follows_instructions():
    record = play(Guessing, guesses(7), {"messages": [{"role": "system", "content": "Be brief."}]})
    assert texts(record)[:2] == [("system", "Be brief."), ("user", "Which number?")]


def test_rollout_worker_examples_count_as_turns():
    conversation = [("user", "Guess 1."), ("assistant", '{"number": 1}'), ("user", "Guess.")]
    task = {"messages": [{"role": role, "content": content} for role, content in conversation]}
    policy = ScriptedPolicy([{"number": 8}, {"number": 7}], first_turn=1)
    record = play(Guessing, policy, task)
    assert record.ended == "done"
    assert [step.step_info["assistant_turn_index"] for step in record.steps] == [1, 2]
    assert [step.system_step_index for step in record.steps] == [0, 1]


EXAMPLES = [
    {"role": "user", "content": "Guess 1."},
    {"role": "assistant", "content": '{"number": 1}'},
    {"role": "user", "content": "Guess."},
]


def test_rollout_worker_script_starts_at_its_first_action_after_examples():
    record = play(Guessing, guesses(8, 7), {"messages": EXAMPLES})
    assert (record.ended, record.env_rewards) == ("done", [0.5, 1.0])
    assert [text for role, text in texts(record) if role == "assistant"] == [
        '{"number": 1}',
        '{"number": 8}',
        '{"number": 7}',
    ]


def test_rollout_worker_records_the_first_turn():
    record = play(Guessing, guesses(8, 7), {"messages": EXAMPLES})
    assert (record.first_turn, record.to_row()["first_turn"]) == (1, 1)
    assert [step.step_info["assistant_turn_index"] for step in record.steps] == [1, 2]
    assert [action.turn for action, _ in Rollout.from_row(record.to_row()).steps] == [1, 2]


@pytest.mark.parametrize("form", ["messages", "rollout", "record", "steps"])
def test_rollout_worker_replays_a_recording_after_its_examples(form):
    record = play(Guessing, guesses(8, 7), {"messages": EXAMPLES}, seed=7)
    recording = {
        "messages": record.messages,
        "rollout": Rollout.from_row(record.to_row()),
        "record": record,
        "steps": record.steps,
    }[form]

    def read(action):
        return json.loads(action["content"]) if "content" in action else action

    policy = ReplayPolicy(recording)
    again = play(Guessing, policy, {"messages": EXAMPLES}, seed=7, to_action=read)
    assert (again.ended, again.error, again.messages) == ("done", None, record.messages)


def test_rollout_worker_errors_name_the_turn_of_the_conversation():
    failed = play(Guessing, guesses(8, 13), {"messages": EXAMPLES})
    assert failed.error == "step 2: OSError: the game is down"
    assert [step.step_info.get("error") for step in failed.steps] == [None, failed.error]
    ended = play(Guessing, guesses(8), {"messages": EXAMPLES})
    assert ended.error.startswith("the policy at step 2: PolicyError: ")


@pytest.mark.parametrize("prompt", ["Guess!", [{"role": "user", "content": "Guess!"}]], ids=type)
def test_rollout_worker_task_prompt_is_text_or_messages(prompt):
    record = play(Guessing, guesses(7), {"prompt": prompt, "level": 2})
    assert texts(record)[0] == ("user", "Guess!")
    row = record.to_row()
    assert "prompt" not in row
    assert row["level"] == 2


def test_rollout_worker_rejects_a_task_with_messages_and_a_prompt():
    task = {"prompt": "Guess!", "messages": EXAMPLES}
    with pytest.raises(InvalidArgumentError, match="either 'messages' or a 'prompt'"):
        play(Guessing, guesses(7), task)
    assert texts(play(Guessing, guesses(7), task | {"prompt": None}))[0] == ("user", "Guess 1.")


def test_rollout_worker_passes_the_reset_arguments_of_a_task():
    record = play(Guessing, guesses(9), {"reset": {"more": 2, "unknown": 1}}, seed=7)
    assert record.ended == "done"


class Strict(Guessing):
    def reset(self, seed=None, episode_id=None, more=0):
        return super().reset(seed, episode_id, more)


class AsyncStrict(AsyncGuessing):
    async def reset_async(self, seed=None, episode_id=None, more=0):
        return Guessing.reset(self, seed, episode_id, more)


class Duck:
    """An environment without a base class."""

    def reset(self, seed=None, more=0):
        self.secret = 7 + more
        return {"text": "Which number?", "done": False}

    def step(self, action):
        return {"text": "?", "done": action["number"] == self.secret, "reward": 1.0}


class AsyncDuck(Duck):
    async def reset(self, seed=None, *, more=0):
        return super().reset(seed, more)


STRICT = pytest.mark.parametrize("kind", [Strict, AsyncStrict, Duck, AsyncDuck])


@STRICT
def test_rollout_worker_reports_unknown_reset_arguments(kind):
    record = play(kind, guesses(9), {"reset": {"more": 2, "moer": 1, "board": 3}})
    assert (record.ended, record.steps) == ("error", [])
    assert record.error.startswith("reset: ResetArgumentError: ")
    assert "takes no 'board', 'moer'; known: " in record.error
    assert "'more', 'seed'" in record.error


@STRICT
def test_rollout_worker_passes_known_reset_arguments(kind):
    assert play(kind, guesses(9), {"reset": {"more": 2}}).ended == "done"


def test_rollout_worker_reset_metadata_is_on_the_first_step_only():
    record = play(Guessing, guesses(8, 7), {"messages": EXAMPLES}, rollout_id="e1")
    metadata = [step.step_info.get("reset_metadata") for step in record.steps]
    assert metadata == [{"episode": "e1"}, None]  # the lock can't be JSON


def test_rollout_worker_without_reset_metadata_records_none():
    record = play(Duck, guesses(7))
    assert record.ended == "done"
    assert "reset_metadata" not in record.steps[0].step_info


def test_rollout_worker_ground_truth_overrides_that_of_the_task():
    worker = RLRolloutWorker(Guessing, guesses(7), max_steps=1)
    task = {"ground_truth": "6"}
    assert run(worker.run(task)).ground_truth == "6"
    assert run(worker.run(task, ground_truth="7")).ground_truth == "7"


def test_rollout_worker_to_messages_makes_the_messages():
    def to_messages(observation, calls):
        assert calls == []
        return [Message(role="user", content=f"<{observation.text}>")]

    record = play(Guessing, guesses(7), to_messages=to_messages)
    assert [text for role, text in texts(record) if role == "user"] == ["<Which number?>", "<yes>"]


def test_rollout_worker_answers_each_tool_call():
    calls = [CallToolAction(tool_name="guess", arguments={"number": n}) for n in (7, 8)]
    policy = ScriptedPolicy([calls[0].model_dump(), CallToolsAction(calls=calls)])

    def read(action):
        return {"number": 1}

    record = play(Guessing, policy, to_action=read, max_steps=2)
    first, answer, second, *answers = [message.to_openai() for message in record.messages[1:]]
    function = {"name": "guess", "arguments": '{"number": 7}'}
    assert first["tool_calls"] == [{"id": "call_0_0", "type": "function", "function": function}]
    assert first["content"] is None
    assert answer == {"role": "tool", "content": "no", "tool_call_id": "call_0_0"}
    assert [call["id"] for call in second["tool_calls"]] == ["call_1_0", "call_1_1"]
    assert [each["tool_call_id"] for each in answers] == ["call_1_0", "call_1_1"]


class Listens:
    """Notes what it is given."""

    def __init__(self):
        self.given = []

    async def get_action(
        self, observation, available_tools_specs=None, *, messages=None, turn=None
    ):
        self.given.append((observation, available_tools_specs, messages))
        messages.append("nothing of the worker's")
        return {"number": 7}, "seven", None, None


def test_rollout_worker_passes_observation_tools_and_messages_to_the_policy():
    policy = Listens()
    record = play(Guessing, policy, tools=[{"type": "function"}])
    [(observation, tools, messages)] = policy.given
    assert isinstance(observation, Hint)
    assert tools == [{"type": "function"}]
    assert messages[:-1] == record.messages[:1]
    assert len(record.messages) == 3  # a policy's list is its own


def test_rollout_worker_passes_the_tools_of_the_environment():
    class Equipped(Guessing):
        tools = ({"type": "function"},)

    policy = Listens()
    play(Equipped, policy)
    assert policy.given[0][1] == [{"type": "function"}]


def test_rollout_worker_passes_messages_to_a_policy_with_kwargs():
    class Wraps:
        async def get_action(self, observation, available_tools_specs=None, **kwargs):
            return await inner.get_action(observation, available_tools_specs, **kwargs)

    inner = Listens()
    assert play(Guessing, Wraps()).ended == "done"
    assert len(inner.given[0][2]) == 2


# What is refused


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, None])
def test_rollout_worker_rejects_max_steps_below_1(steps):
    with pytest.raises(InvalidArgumentError, match="`max_steps` must be an integer >= 1"):
        RLRolloutWorker(Guessing, guesses(1), max_steps=steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"env": "env"}, "`env` must have reset and step", id="env"),
        pytest.param(
            {"policy": lambda o: o}, "`policy` must have `async def get_action(", id="policy"
        ),
        pytest.param(
            {"policy": ScriptedPolicy}, "`policy` must have `async def get_action(", id="class"
        ),
        pytest.param(
            {"stop_pattern": "("}, "`stop_pattern` must be a regular expression", id="pattern"
        ),
        pytest.param(
            {"step_timeout": 0},
            "`step_timeout` must be a number of seconds above 0",
            id="step_timeout",
        ),
        pytest.param(
            {"policy_timeout": None},
            "`policy_timeout` must be a number of seconds above 0",
            id="policy_timeout",
        ),
    ],
)
def test_rollout_worker_rejects_invalid_arguments(options, message):
    given = {"env": Guessing, "policy": guesses(1), **options}
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        RLRolloutWorker(given.pop("env"), given.pop("policy"), max_steps=1, **given)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        pytest.param(5, "`task` must be a prompt", id="number"),
        pytest.param({"messages": [{"role": "robot"}]}, "task['messages'][0].role", id="role"),
        pytest.param({"messages": ["hi"]}, "task['messages'][0]: ", id="texts"),
        pytest.param({"messages": 5}, "must be a list of messages", id="no list"),
        pytest.param({"reset": 5}, "task['reset'] must be a dict", id="reset"),
    ],
)
def test_rollout_worker_rejects_invalid_tasks(task, message):
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        play(Guessing, guesses(1), task)


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_run_group_rejects_a_number_below_1(n):
    worker = RLRolloutWorker(Guessing, guesses(1), max_steps=1)
    with pytest.raises(InvalidArgumentError, match="`n` must be an integer >= 1"):
        run(worker.run_group(None, n))


@pytest.mark.parametrize("name", ["seed", "ended", "error", "env_rewards", "first_turn"])
def test_rollout_worker_rejects_columns_of_the_record_in_a_task(name):
    with pytest.raises(InvalidArgumentError, match=re.escape(f"a task must not have ['{name}']")):
        play(Guessing, guesses(7), {"id": "q", name: 1})


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, [1]], ids=str)
def test_rollout_worker_rejects_invalid_seeds(seed):
    worker = RLRolloutWorker(Guessing, guesses(7), max_steps=1)
    for asked in (worker.run(seed=seed), worker.run_group(None, 1, seed=seed)):
        with pytest.raises(InvalidArgumentError, match="`seed` must be an integer >= 0"):
            run(asked)


# What a conversation shows first

TOLD = [{"role": "system", "content": "Guess well."}]


@pytest.mark.parametrize(
    ("shown", "task", "roles"),
    [
        ("auto", "Guess.", ["user", "assistant"]),
        ("always", "Guess.", ["user", "user", "assistant"]),
        ("never", "Guess.", ["user", "assistant"]),
        ("auto", None, ["user", "assistant"]),
        ("never", None, ["assistant"]),
        (
            "auto",
            {"messages": [{"role": "system", "content": "s"}]},
            ["system", "user", "assistant"],
        ),
        ("never", {"messages": [{"role": "system", "content": "s"}]}, ["system", "assistant"]),
    ],
    ids=range(7),
)
def test_rollout_worker_first_observation_option(shown, task, roles):
    record = play(Guessing, guesses(7), task, first_observation=shown)
    assert [message.role for message in record.messages[:-1]] == roles
    assert record.ended == "done"


def test_rollout_worker_rejects_an_invalid_first_observation():
    with pytest.raises(InvalidArgumentError, match="'auto', 'always' or 'never'"):
        RLRolloutWorker(Guessing, guesses(7), max_steps=1, first_observation=True)


def test_rollout_worker_uses_the_group_of_the_task():
    worker = RLRolloutWorker(Guessing, guesses(7), max_steps=1)
    records = run(worker.run_group({"id": "q7", "group": "g"}, 2, seed=7))
    assert [(record.id, record.group) for record in records] == [("g-0", "g"), ("g-1", "g")]
    assert run(worker.run({"id": "q7", "group": "g"})).group == "g"


def test_run_group_names_groups_by_task_and_seed():
    worker = RLRolloutWorker(Guessing, guesses(7), max_steps=1)
    both = [run(worker.run_group({"id": "q7"}, 1, seed=seed))[0] for seed in (1, 2)]
    assert [record.id for record in both] == ["q7:1-0", "q7:2-0"]
    assert [record.steps[0].step_info["group"] for record in both] == ["q7:1", "q7:2"]


# Tools


class Door(ToolEnvironment):
    """A door with a key, which is a tool once it was found."""

    def __init__(self):
        super().__init__(rubric=ToolErrors())

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.has_key = False
        return self.begin("Open the door.")

    @tool
    def look(self, place: str) -> str:
        """Look somewhere."""
        self.has_key = place == "mat"
        if place == "sky":
            raise ValueError("too bright")
        return f"looked at the {place}"

    @tool(when=lambda self: self.has_key, ends=True)
    def unlock(self) -> str:
        """Unlock the door."""
        return "open"


def look(*places):
    calls = [CallToolAction(tool_name="look", arguments={"place": each}) for each in places]
    return calls[0] if len(calls) == 1 else CallToolsAction(calls=calls)


def played(*actions, **options):
    worker = RLRolloutWorker(Door, ScriptedPolicy(actions), max_steps=len(actions) + 9, **options)
    return worker.run_sync()


def test_rollout_worker_answers_each_tool_call_with_its_own_result():
    record = played(look("wall", "sky"), {"type": "message", "content": "I give up."})
    answers = [each.to_openai() for each in record.messages if each.role == "tool"]
    assert [each["content"] for each in answers] == ["looked at the wall", "too bright"]
    assert [each.get("error_type") for each in answers] == [None, "execution_error"]
    assert (record.ended, record.messages[-1].role) == ("done", "assistant")


def test_rollout_worker_step_per_call_takes_a_step_for_each_call_of_a_turn():
    unlock = CallToolAction(tool_name="unlock")
    turn = CallToolsAction(calls=[*look("sky", "mat").calls, unlock])
    by_turn, by_call = (played(turn, step_per=each) for each in ("turn", "call"))
    assert by_turn.env_rewards == [pytest.approx(2 / 3)]
    assert by_call.env_rewards == [0.0, 1.0, 1.0]
    assert [each.step_info["assistant_turn_index"] for each in by_call.steps] == [0, 0, 0]
    assert [each.system_step_index for each in by_call.steps] == [0, 1, 2]
    for record in (by_turn, by_call):
        texts = [each.text for each in record.messages if each.role == "tool"]
        assert texts == ["too bright", "looked at the mat", "open"]
        assert record.ended == "done"


def test_rollout_worker_step_per_call_goes_on_with_the_next_turn():
    record = played(look("wall", "mat"), CallToolAction(tool_name="unlock"), step_per="call")
    assert [each.step_info["assistant_turn_index"] for each in record.steps] == [0, 0, 1]
    assert [each.step_info.get("step_id") for each in record.steps] == ["0.0", "0.1", None]
    assert (record.ended, record.error) == ("done", None)


def test_rollout_worker_passes_the_tools_of_each_turn():
    seen = []

    class Policy(ScriptedPolicy):
        async def get_action(self, observation, tools=None, **options):
            seen.append([each["function"]["name"] for each in tools])
            return await super().get_action(observation, tools, **options)

    policy = Policy([look("mat"), CallToolAction(tool_name="unlock")])
    RLRolloutWorker(Door, policy, max_steps=2).run_sync()
    assert seen == [["look"], ["look", "unlock"]]


def test_rollout_worker_refuses_an_unknown_step_per():
    with pytest.raises(InvalidArgumentError, match="`step_per` must be"):
        RLRolloutWorker(Door, ScriptedPolicy([look("mat")]), max_steps=1, step_per="token")
