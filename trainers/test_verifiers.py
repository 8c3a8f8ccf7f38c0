"""`guerdon.integrations.verifiers` with verifiers and a fake OpenAI endpoint."""

import asyncio
import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import uvicorn
import verifiers.v1 as vf
from verifiers.v1.trace import AgentInfo, MessageNode, TraceTask
from verifiers.v1.utils.loaders import env_config_type, load_environment

from guerdon import create_app
from guerdon.integrations.verifiers import reward, step_advantages
from trainers.agreement import ROLLOUTS
from trainers.locks import Lock
from trainers.rollouts import make_reward, texts

PROBLEMS = """
import verifiers.v1 as vf

from guerdon.integrations.verifiers import reward
from trainers.locks import AsyncJudge, Judge, tree

__all__ = ["Problems"]


class Problem(vf.TaskData):
    answer: str


class WordProblem(vf.Task[Problem]):
    solved = reward(tree(), name="solved", weight=2.0)
    asked = reward(tree(AsyncJudge), name="asked")


class Problems(vf.Taskset[WordProblem, vf.TasksetConfig]):
    def load(self):
        for answer in ("42", "41", "down"):
            yield WordProblem(Problem(prompt=f"Say {answer}", answer=answer), self.config.task)
"""
LOCKS = """
from guerdon.integrations.verifiers import environment, taskset
from trainers.locks import Lock

__all__ = ["LockEnv", "Locks"]

Locks = taskset([{"seed": 37}, {"seed": 37}], system_prompt="Open the lock.")
LockEnv = environment(Lock, name="opened")
"""


class Endpoint(BaseHTTPRequestHandler):
    """Streams the answer of `server.answer` to the messages of a request."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        said = {"role": "assistant", "content": self.server.answer(body["messages"])}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        events = [
            chunk | {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            chunk | {"choices": [], "usage": usage},
        ]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments):
        pass


@contextmanager
def endpoint(answer):
    """Serve an endpoint; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.answer = answer
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def episodes(tmp_path, monkeypatch):
    """Return a function that plays each task of a taskset once."""
    (tmp_path / "problems.py").write_text(PROBLEMS)
    (tmp_path / "locks_of_guerdon.py").write_text(LOCKS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FAKE_KEY", "key")
    if "UV" in os.environ:  # the harness of verifiers runs it
        folder = Path(os.environ["UV"]).parent
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    async def play(taskset, answer, agent, limits):
        with endpoint(answer) as url:
            client = vf.EvalClientConfig(base_url=url, api_key_var="FAKE_KEY")
            seat = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, **limits}
            config = env_config_type(taskset["id"]).model_validate(
                {"taskset": taskset, agent: seat}
            )
            env = load_environment(config)
            async with env.serving():
                context = vf.ModelContext(model="m", client=client)
                return [await env.run_episode(task, context) for task in env.taskset]

    def play_all(taskset, answer, *, agent="player", **limits):
        taskset = {"id": taskset} if isinstance(taskset, str) else taskset
        return asyncio.run(play(taskset, answer, agent, limits))

    return play_all


def turn_by_turn(*texts):
    """Return an answer for each turn."""
    return lambda messages: texts[sum(each["role"] == "assistant" for each in messages)]


def test_reward_scores_traces_and_fails_those_whose_reward_fails(episodes):
    def answer(messages):
        label = messages[-1]["content"].split()[-1]
        return {"42": "A: 42", "41": "A: 7"}.get(label, label)

    right, wrong, failed = (
        episode.traces[0] for episode in episodes("problems", answer, agent="agent")
    )
    assert [(each.ok, each.reward) for each in (right, wrong)] == [(True, 3.0), (True, 0.0)]
    assert right.rewards["solved"].weight == 2.0
    assert right.metrics == {
        f"{name}/rubric_{number}": 1.0 for name in ("solved", "asked") for number in (0, 1)
    }
    assert right.info["guerdon"]["solved"]["step_rewards"] == {"1": 2.0}
    assert not failed.ok
    assert failed.rewards == {"solved": None, "asked": None}
    assert "the judge is down" in failed.last_error.message
    assert json.loads(json.dumps(failed.to_record()))["metrics"]["solved/rubric_1"] is None


class Sum(vf.TaskData):
    """The data of a rollout."""

    answer: str


class SumTask(vf.Task[Sum]):
    """Scores a rollout."""

    solved = reward(make_reward(), name="solved")


def test_reward_gives_traces_the_scores_of_the_reward(agrees):
    async def score(row):
        prompt, text = texts(row)
        task = SumTask(Sum(prompt=prompt, answer=row["ground_truth"]))
        trace = vf.Trace(
            task=TraceTask(type="SumTask", data=task.data), agent=AgentInfo(config=vf.AgentConfig())
        )
        trace.nodes = [
            MessageNode(message=vf.UserMessage(content=prompt)),
            MessageNode(message=vf.AssistantMessage(content=text), parent=0, sampled=True),
        ]
        try:
            await task.score(trace)
        except vf.TaskError as error:
            assert trace.rewards == {"solved": None}
            return error
        return trace.reward

    async def score_all():
        return await asyncio.gather(*map(score, ROLLOUTS))

    agrees("verifiers, `Task.score`", asyncio.run(score_all()), failures="`TaskError`")


def test_environment_plays_and_step_advantages_reach_the_branches(episodes):
    good, slow = (
        episode.traces[0]
        for answers in (("3", "7"), ("5", "3", "7"))
        for episode in episodes("locks_of_guerdon", turn_by_turn(*answers))[:1]
    )
    assert (good.ok, good.reward, slow.reward) == (True, 2.0, 2.0)
    for trace in (good, slow):
        for node in trace.nodes:
            if node.sampled:  # as a `TrainClient` does
                node.token_ids, node.mask = [1, 2, 3], [False, True, True]
    credit = step_advantages([good, slow], [good.task.key, slow.task.key], gamma=0.95)
    expected = credit.advantage.tolist()
    assert expected[0] > expected[2]  # from the same state
    spread = [good.branches[0].advantages, slow.branches[0].advantages]
    assert [[each[1 + 3 * turn] for turn in range(len(each) // 3)] for each in spread] == [
        expected[:2],
        expected[2:],
    ]


@pytest.mark.parametrize("answers", [("3", "9"), ("3", "no digit")])
def test_environment_fails_the_trace_if_the_reward_fails_or_the_action_is_invalid(
    answers, episodes
):
    for episode in episodes("locks_of_guerdon", turn_by_turn(*answers)):
        [trace] = episode.traces
        assert (episode.ok, trace.ok, trace.rewards) == (False, False, {"opened": None})
        assert trace.errors


def test_environment_records_the_steps_before_a_limit(episodes):
    for episode in episodes("locks_of_guerdon", turn_by_turn("3", "5", "5"), max_turns=2):
        [trace] = episode.traces
        assert (trace.ok, trace.is_truncated, trace.reward) == (True, True, 1.0)


# Its own taskset of OpenEnv


@contextmanager
def served(app):
    """Serve an application; yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def of_openenv(episodes, answers, **options):
    with served(create_app(Lock, **options)) as url:
        taskset = {"id": "openenv", "base_url": url, "resets": [{"seed": 37}]}
        return episodes(taskset, turn_by_turn(*answers))[0]


def test_openenv_taskset_plays_a_server_of_guerdon(episodes):
    episode = of_openenv(episodes, ("3", "7"), fail_on_reward_error=True)
    assert (episode.ok, episode.traces[0].reward) == (True, 2.0)


def test_openenv_taskset_reads_a_failed_reward_as_0_unless_fail_on_reward_error_is_set(episodes):
    answers = ("3", "9", "7")
    silent = of_openenv(episodes, answers)
    assert (silent.ok, silent.traces[0].reward) == (True, 2.0)
    failed = of_openenv(episodes, answers, fail_on_reward_error=True)
    assert not failed.ok
    assert not failed.traces[0].ok
    assert "the scale is broken" in failed.errors[-1].message
