"""Scoring with rewards in a sandbox: the same rows, and nothing of them in this process."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from guerdon.errors import InvalidArgumentError, LoadError, RolloutError
from guerdon.rollouts import CreditSettings, ScoringJob
from guerdon.rollouts.scoring.scorers import SandboxSettings
from guerdon.sandbox.protocol import Limits

pytestmark = pytest.mark.edge  # real processes

# What the rows of the levels have in common needs no more than the one that works everywhere.
PROCESS = SandboxSettings("process")

REWARDS = """
    import os, signal, sys
    from guerdon import (
        EvaluateResult, Gate, Guarded, Rubric, Sequential, StepOutput, TrajectoryRubric,
        WeightedSum, reward_function,
    )

    class Number(Rubric):
        def forward(self, action, observation):
            return float(action.content)

    class Later(Rubric):
        async def forward(self, action, observation):
            return float(action.content) / 2

    class Last(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return float(trajectory[-1][0].content)

        def compute_step_rewards(self):
            return [float(number) for number in range(len(self._trajectory))]

    def rubric():
        return WeightedSum([Gate(Number(), 0.5), Sequential(Number(), Number())], [1.0, -0.5])

    later = WeightedSum([Number(), Later()], [0.5, 0.5])
    last = WeightedSum([Last(), Number()], [0.5, 0.5])
    guarded = Guarded(Number(), on_error="zero")

    @reward_function
    def function(messages, ground_truth=None, *, scale=1.0, **columns):
        value = float(messages[-1].text) * scale
        steps = [StepOutput(step_index=0, base_reward=value, reason="first"),
                 StepOutput(step_index=7, base_reward=1.0)]
        reason = repr((ground_truth, sorted(columns.items(), key=str)))
        return EvaluateResult(score=value, reason=reason, step_outputs=steps,
                              metrics={"n": 1, "text": "x"})

    @reward_function
    def batch(rollouts_messages, ground_truths, **columns):
        found = [float(messages[-1].text) for messages in rollouts_messages]
        return [{"score": value - min(found), "reason": repr(columns)} for value in found]

    @reward_function
    def prints(messages):
        print("looking at", messages[-1].text)
        return 1.0

    @reward_function
    def remembers(messages, seen=[]):
        seen.append(1)
        return float(len(seen))

    @reward_function
    def odd(messages):
        text = messages[-1].text
        if text == "hangs":
            while True:
                pass
        if text == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "leaves":
            os._exit(0)
        return 1.0

    def key(step):
        return step.system_step_index
"""


@pytest.fixture
def spec(reward):
    file = reward(REWARDS).removesuffix(":reward")
    return lambda name: f"{file}:{name}"


@pytest.fixture
def run(tmp_path):
    """Runs a job; gives the report and the rows that it wrote."""

    def run(rollouts, reward, **options):
        out = options.pop("out", str(tmp_path / "scored.jsonl"))
        report = ScoringJob(rollouts, reward, out, **options).run()
        return report, [json.loads(line) for line in Path(out).read_bytes().splitlines()]

    return run


def rollouts(row):
    """Rollouts of every kind, with invalid lines."""
    return [
        row("0.5", id="a", group="g", kind="x", ground_truth="0.5"),
        row("0.25", "1", "2", id="b", group="g", kind=["y", None]),
        row("no number", id="ç", group="g"),
        row("1", "no number", id="d", group="g"),
        b"{broken",
        {"id": "e", "messages": []},
        row("example", "1", "0.5", id="f", group="h", first_turn=1),
        row("0", group={"h": 1}, ground_truth={"is": [1, "\ud800"]}),
    ]


def without(row):
    return {name: value for name, value in row.items() if name not in ("sandbox", "log")}


@pytest.mark.parametrize("name", ["rubric", "later", "last", "guarded", "function", "batch"])
def test_sandbox_rows_equal_those_without_a_sandbox(row, write_rows, run, spec, name):
    file = write_rows(rollouts(row))
    here, expected = run(file, spec(name))
    there, rows = run(file, spec(name), sandbox=PROCESS)
    assert [without(each) for each in rows] == expected
    assert {each["sandbox"] for each in rows} == {"process"}
    assert there.fingerprint == here.fingerprint
    assert there.summary.to_dict() == here.summary.to_dict()


def test_sandbox_credit_equals_that_without_a_sandbox(row, write_rows, run, spec):
    file = write_rows(rollouts(row)[:4])
    credit = CreditSettings("gigpo", options={"gamma": 0.9})
    _, expected = run(file, spec("rubric"), credit=credit)
    _, rows = run(file, spec("rubric"), credit=credit, sandbox=PROCESS)
    assert [without(each) for each in rows] == expected


def test_sandbox_workers_write_the_same_rows_in_order(row, write_rows, run, spec):
    file = write_rows([row(str(number), id=number) for number in range(40)])
    _, one = run(file, spec("function"), sandbox=PROCESS)
    report, several = run(file, spec("function"), sandbox=PROCESS, workers=3)
    assert several == one
    assert [each["id"] for each in several] == list(range(40))
    assert report.scored == 40


def test_sandbox_loads_nothing_of_the_reward_in_this_process(row, write_rows, run, spec):
    before = set(sys.modules)  # other tests load rewards
    run(write_rows([row("1")]), spec("function"), sandbox=PROCESS)
    loaded = sys.modules.keys() - before
    assert [name for name in loaded if name.startswith("guerdon_reward_")] == []


def test_sandbox_calls_see_nothing_of_each_other(row, write_rows, run, spec):
    _, rows = run(write_rows([row("x")] * 3), spec("remembers"), sandbox=PROCESS)
    assert [each["score"] for each in rows] == [1.0, 1.0, 1.0]


def test_sandbox_row_logs_what_the_reward_printed(row, write_rows, run, spec, capfd):
    _, rows = run(write_rows([row("a"), row("b")]), spec("prints"), sandbox=PROCESS)
    assert [each["log"] for each in rows] == ["looking at a\n", "looking at b\n"]
    assert capfd.readouterr() == ("", "")


def test_sandbox_report_describes_the_sandbox(row, write_rows, run, spec, tmp_path):
    settings = SandboxSettings("process", Limits(seconds=9), (str(tmp_path),))
    report, _ = run(write_rows([row("1")]), spec("function"), sandbox=settings)
    promise = report.sandbox["promise"]
    assert report.sandbox == {
        "level": "process", "promise": promise, "limits": asdict(Limits(seconds=9)),
        "allow_read": [str(tmp_path)], "reuse": False,
    }  # fmt: skip
    assert promise
    assert run(write_rows([row("1")]), spec("function"))[0].sandbox is None


def test_sandbox_reuse_scores_the_same_rows(row, write_rows, run, spec):
    reuse = SandboxSettings("process", reuse=True)
    file = write_rows([row(str(number), id=number) for number in range(300)])
    for name in ("function", "rubric"):
        _, expected = run(file, spec(name))
        report, rows = run(file, spec(name), sandbox=reuse, workers=2)
        assert [each | {"sandbox": "process"} for each in expected] == rows
        assert report.scored == 300


def test_sandbox_reuse_shares_copies(row, write_rows, run, spec):
    reuse = SandboxSettings("process", reuse=True)
    _, rows = run(write_rows([row("x")] * 50), spec("remembers"), sandbox=reuse)
    assert max(each["score"] for each in rows) > 1.0


@pytest.mark.parametrize(
    ("what", "kind"), [("hangs", "timeout"), ("dies", "sandbox_error"), ("leaves", "exited")]
)
def test_sandbox_call_that_crashes_is_an_invalid_row(row, write_rows, run, spec, what, kind):
    file = write_rows([row("x"), row(what), row("x")])
    settings = SandboxSettings("process", Limits(seconds=1))
    report, rows = run(file, spec("odd"), sandbox=settings)
    assert [each["score"] for each in rows] == [1.0, None, 1.0]
    assert rows[1]["error"].startswith(f"{kind}: ")
    assert report.summary.failures == {kind: 1}


def test_sandbox_passes_parameters_and_adds_them_to_the_fingerprint(row, write_rows, run, spec):
    file = write_rows([row("2")])
    here, expected = run(file, spec("function"), parameters={"scale": 3})
    there, rows = run(file, spec("function"), parameters={"scale": 3}, sandbox=PROCESS)
    assert [without(each) for each in rows] == expected
    assert rows[0]["score"] == 6.0
    assert there.fingerprint == here.fingerprint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("prints", "prints has no parameter 'scale'; it accepts no parameters"),
        ("rubric", "a rubric has no parameters, got .'scale'."),
    ],
)
def test_sandbox_rejects_unknown_parameters(row, write_rows, run, spec, name, message):
    with pytest.raises(InvalidArgumentError, match=message):
        run(write_rows([row("2")]), spec(name), parameters={"scale": 3}, sandbox=PROCESS)


def test_sandbox_rejects_a_state_key_that_would_run_outside(row, write_rows, run, spec):
    credit = CreditSettings("gigpo", state_key=spec("key"))
    with pytest.raises(InvalidArgumentError, match=r"reward\.py:key would run outside of the sand"):
        run(write_rows([row("2")]), spec("function"), credit=credit, sandbox=PROCESS)


@pytest.mark.parametrize("levels", [(None, PROCESS), (PROCESS, None)], ids=["in", "out"])
def test_sandbox_run_resumes_at_another_level(row, write_rows, run, spec, tmp_path, levels):
    file = write_rows([row(str(number), id=number) for number in range(4)])
    _, whole = run(file, spec("function"), sandbox=levels[0])
    out = tmp_path / "part.jsonl"
    out.write_text("".join(json.dumps(each) + "\n" for each in whole[:2]))
    options = {"resume": True, "out": str(out)}
    report, rows = run(file, spec("function"), sandbox=levels[1], **options)
    assert (report.resumed, report.scored) == (2, 2)
    assert [without(each) for each in rows] == [without(each) for each in whole]
    named = [level.level if level else None for level in levels for _ in range(2)]
    assert [each.get("sandbox") for each in rows] == named


def test_sandbox_resume_rejects_another_reward(row, write_rows, run, spec):
    file = write_rows([row("1"), row("2")])
    run(file, spec("function"), sandbox=PROCESS)
    with pytest.raises(RolloutError, match="was scored by reward"):
        run(file, spec("prints"), sandbox=PROCESS, resume=True)


def test_sandbox_missing_reward_keeps_the_output(row, write_rows, run, spec, tmp_path):
    out = tmp_path / "scored.jsonl"
    out.write_text("kept")
    with pytest.raises(LoadError, match="nothing"):
        run(write_rows([row("1")]), spec("nothing"), sandbox=PROCESS)
    assert out.read_text() == "kept"


def test_sandbox_settings_reject_the_level_none():
    with pytest.raises(InvalidArgumentError, match="`level` must name a sandbox, got 'none'"):
        SandboxSettings("none")
