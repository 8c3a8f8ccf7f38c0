"""Job: a file of rollouts in, a file of result rows out."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from guerdon.credit import ESTIMATORS
from guerdon.errors import (
    CreditError,
    InvalidArgumentError,
    LoadError,
    MissingExtraError,
    RolloutError,
    ScoringError,
)
from guerdon.rollouts import RLDataAligner, ScoringJob, apply_credit
from guerdon.rollouts.crediting import CreditSettings
from guerdon.rollouts.scoring.result_rows import RowWriter
from guerdon.types import EvaluateResult, Rollout, StepOutput

# Two workers are processes, each of which imports guerdon.
WORKERS = [1, pytest.param(2, marks=pytest.mark.edge)]

REWARD = """
    from guerdon import Gate, Rubric, WeightedSum

    class Number(Rubric):
        '''The turn is a number.'''
        def forward(self, action, observation):
            return float(action.content)

    def reward():
        return WeightedSum([Gate(Number(), 0.5), Number()], [1.0, 0.5])
"""


@pytest.fixture
def spec(reward):
    return reward(REWARD)


@pytest.fixture
def run(tmp_path, spec):
    """Runs a job; gives the report and the rows that it wrote."""

    def run(rollouts, **options):
        out = options.pop("out", str(tmp_path / "scored.jsonl"))
        progress = options.pop("progress", None)
        report = ScoringJob(rollouts, options.pop("reward", spec), out, **options).run(progress)
        return report, [json.loads(line) for line in Path(out).read_bytes().splitlines()]

    return run


def mixed(row):
    """Rows of every kind, with invalid lines."""
    return [
        row("0.5", id="a", kind="x"),
        b"{broken",
        row("0.25", "1", id="b", kind="y"),
        b"",
        row("no number", id="ç", kind="x"),
        {"id": "d", "messages": []},
        row("0", id=["e", None], group={"g": 1}),
        row("1" * 40, id=6, kind="y"),
    ]


def test_scoring_job_keeps_the_order_of_rows(row, write_rows, run):
    report, rows = run(write_rows([row("1", id=i, group=-i) for i in range(200)]))
    assert [r["id"] for r in rows] == list(range(200))
    assert [r["group"] for r in rows] == [-i for i in range(200)]
    assert (report.scored, report.resumed, report.interrupted) == (200, 0, False)


def test_scoring_job_writes_the_row_of_the_scorer(row, write_rows, run):
    report, rows = run(write_rows([row("0.5", "1", id="a", group="g")]))
    assert rows == [
        {
            "id": "a",
            "group": "g",
            "score": 2.25,
            "is_score_valid": True,
            "components": {
                "rubric_0": 1.5,
                "rubric_0.rubric": 1.5,
                "rubric_1": 1.5,
            },
            "step_components": [
                {"rubric_0": 0.5, "rubric_0.rubric": 0.5, "rubric_1": 0.5},
                {"rubric_0": 1.0, "rubric_0.rubric": 1.0, "rubric_1": 1.0},
            ],
            "step_rewards": [0.75, 1.5],
            "error": None,
            "fingerprint": report.fingerprint,
        }
    ]


def test_scoring_job_reports_a_broken_line_and_continues(row, write_rows, run):
    lines = [row("1", id="a"), b"{", b"\xff\xfe", b"", b"[]", row("1", id="b")]
    report, rows = run(write_rows(lines))
    assert [r["score"] for r in rows] == [1.5, None, None, None, 1.5]
    assert [r["error"] and r["error"].partition(": ")[0] for r in rows] == [
        None, "line 2", "line 3", "line 5", None,
    ]  # fmt: skip
    assert (report.summary.failed, report.summary.failures) == (3, {"RolloutError": 3})


def test_scoring_job_keeps_the_id_of_an_invalid_rollout(write_rows, run):
    _, rows = run(write_rows([{"id": "q7", "group": "g", "messages": []}]))
    assert (rows[0]["id"], rows[0]["group"]) == ("q7", "g")


@pytest.mark.parametrize(
    "line",
    [
        rb'{"id": "\ud800", "messages": [{"role": "assistant", "content": "1"}]}',
        rb'{"id": 1, "group": "\udfff", "messages": [{"role": "assistant", "content": "1"}]}',
        rb'{"id": 1, "messages": [{"role": "assistant", "content": "\ud800"}]}',
        rb'{"id": 1e999, "messages": [{"role": "assistant", "content": "1"}]}',
        rb'{"id": 1, "group": [-1e999], "messages": [{"role": "assistant", "content": "1"}]}',
        rb'{"id": ' + b"[" * 900 + b"]" * 900 + b', "messages": [{"role": "assistant"}]}',
        b'{"id": 1, "messages": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
        b'{"id": 1, "messages": [{"role": ' + b"[" * 900 + b"]" * 900 + b"}]}",
    ],
)
def test_scoring_job_continues_after_strange_lines(row, write_rows, run, line):
    _, rows = run(write_rows([row("1", id="a"), line, row("1", id="b")]))
    assert [r["score"] for r in rows[::2]] == [1.5, 1.5]
    assert len(rows) == 3


def test_scoring_job_continues_after_an_error_with_a_lone_surrogate(row, write_rows, run, reward):
    spec = reward(
        r"""
        def reward(action, observation):
            raise ValueError("\ud800")
        """
    )
    _, rows = run(write_rows([row("1"), row("1")]), reward=spec)
    assert [r["is_score_valid"] for r in rows] == [False, False]


def test_scoring_job_fails_a_row_whose_score_is_infinite(row, write_rows, run, reward):
    spec = reward(
        """
        def reward(action, observation):
            return float(action.content)
        """
    )
    _, rows = run(write_rows([row("1e308", "1e308", id=1), row("1", id=2)]), reward=spec)
    assert [r["score"] for r in rows] == [None, 1.0]


@pytest.mark.parametrize("data", [b"", b"\n \n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_scoring_job_rejects_an_empty_file(tmp_path, run, data):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(data)
    with pytest.raises(RolloutError, match=r"rollouts\.jsonl has no rollouts: it is empty"):
        run(str(path))


def test_scoring_job_rejects_a_missing_file_and_keeps_the_output(tmp_path, run):
    out = tmp_path / "scored.jsonl"
    out.write_bytes(b"precious\n")
    with pytest.raises(RolloutError, match=r"can't read .*absent\.jsonl: No such file"):
        run(str(tmp_path / "absent.jsonl"))
    assert out.read_bytes() == b"precious\n"


def test_scoring_job_keeps_the_output_if_the_reward_does_not_load(tmp_path, row, write_rows, run):
    out = tmp_path / "scored.jsonl"
    out.write_bytes(b"precious\n")
    with pytest.raises(LoadError):
        run(write_rows([row("1")]), reward=f"{tmp_path}/absent.py:reward")
    assert out.read_bytes() == b"precious\n"


@pytest.mark.parametrize("workers", [0, -1])
def test_scoring_job_requires_one_worker(row, write_rows, run, workers):
    with pytest.raises(InvalidArgumentError, match="must be an integer >= 1"):
        run(write_rows([row("1")]), workers=workers)


def test_scoring_job_rejects_an_unknown_engine(row, write_rows, run):
    with pytest.raises(InvalidArgumentError, match="`engine` must be 'processes' or 'ray'"):
        run(write_rows([row("1")]), engine="spark")


def test_scoring_job_on_ray_requires_the_extra(tmp_path, row, write_rows, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "scored.jsonl").write_bytes(b"precious\n")
    with pytest.raises(MissingExtraError, match=r"guerdon\[ray\]"):
        run(write_rows([row("1")]), engine="ray")
    assert (tmp_path / "scored.jsonl").read_bytes() == b"precious\n"


@pytest.mark.parametrize("way", ["same", "symlink", "hardlink", "dotted"])
def test_scoring_job_never_overwrites_the_rollouts(tmp_path, row, write_rows, run, way):
    rollouts = Path(write_rows([row("1")]))
    before, other = rollouts.read_bytes(), tmp_path / "other.jsonl"
    match way:
        case "same":
            other = rollouts
        case "symlink":
            other.symlink_to(rollouts)
        case "hardlink":
            other.hardlink_to(rollouts)
        case "dotted":
            other = tmp_path / "." / ".." / tmp_path.name / rollouts.name
    with pytest.raises(InvalidArgumentError, match="must not be the file of the rollouts"):
        run(str(rollouts), out=str(other))
    assert rollouts.read_bytes() == before


def test_scoring_job_raises_on_a_full_disk(row, write_rows, spec):
    with pytest.raises(ScoringError, match="No space left"):
        ScoringJob(write_rows([row("1")]), spec, "/dev/full").run()


def test_scoring_job_without_output_returns_a_summary(row, write_rows, spec):
    report = ScoringJob(write_rows([row("1"), row("0")]), spec).run()
    assert (report.summary.rows, report.summary.zeros, report.summary.score.value) == (2, 1, 0.75)


def test_scoring_job_breaks_the_summary_down_by_a_column(row, write_rows, run):
    report, _ = run(write_rows(mixed(row)), by="kind", passing=0.75)
    parts = report.summary.parts
    assert {name: (part.rows, part.failed, part.passed) for name, part in parts.items()} == {
        "x": (2, 1, 1),
        "y": (2, 0, 2),
        "(none)": (2, 1, 0),
        "(unreadable)": (1, 1, 0),
    }
    assert (report.summary.rows, report.summary.passed) == (7, 3)
    assert report.summary.gates == ("rubric_0",)
    assert report.summary.stopped == {"rubric_0": 1}


def test_scoring_job_reports_progress_up_to_all_rows_and_bytes(row, write_rows, run):
    reported = []
    path = write_rows([row("1") for _ in range(300)])
    run(path, progress=lambda rows, read: reported.append((rows, read)))
    assert reported[-1] == (300, Path(path).stat().st_size)
    assert reported == sorted(reported)


# Going on


@pytest.fixture
def whole(row, write_rows, run, tmp_path):
    """The rollouts, and the output of a run that nothing disturbed."""
    rollouts = write_rows(mixed(row))
    report, _ = run(rollouts, by="kind", passing=0.75)
    return rollouts, (tmp_path / "scored.jsonl").read_bytes(), report.summary


def test_scoring_job_resumes_a_file_cut_off_at_any_byte(whole, tmp_path, spec):
    rollouts, data, summary = whole
    out = tmp_path / "again.jsonl"
    ends = [at for at, byte in enumerate(data) if byte == 10]
    for size in sorted({*range(0, len(data), 13), *ends, *(end + 1 for end in ends)}):
        out.write_bytes(data[:size])
        report = ScoringJob(rollouts, spec, str(out), resume=True, by="kind", passing=0.75).run()
        assert out.read_bytes() == data, size
        assert report.summary == summary, size
        assert report.resumed == data[:size].count(b"\n")
        assert report.resumed + report.scored == 7


def test_scoring_job_resumed_summary_counts_all_rows(whole, tmp_path, spec):
    rollouts, data, _ = whole
    fresh = ScoringJob(rollouts, spec).run()
    out = tmp_path / "scored.jsonl"
    out.write_bytes(data[: len(data) // 2])
    assert ScoringJob(rollouts, spec, str(out), resume=True).run().summary == fresh.summary


def test_scoring_job_resume_without_a_file_begins(whole, tmp_path, spec):
    rollouts, data, _ = whole
    out = tmp_path / "fresh.jsonl"
    assert ScoringJob(rollouts, spec, str(out), resume=True).run().resumed == 0
    assert out.read_bytes() == data


@pytest.mark.parametrize("out", [None, "-"])
def test_scoring_job_resume_requires_a_file(whole, spec, out):
    with pytest.raises(InvalidArgumentError, match="--resume requires the file"):
        ScoringJob(whole[0], spec, out, resume=True).run()


def test_scoring_job_resume_rejects_other_rollouts(whole, row, write_rows, run, tmp_path):
    other = write_rows([row("1", id=f"other {i}") for i in range(9)], "other.jsonl")
    with pytest.raises(RolloutError, match="it was made from other rollouts"):
        run(other, resume=True)
    assert (tmp_path / "scored.jsonl").read_bytes() == whole[1]


def test_scoring_job_resume_scores_a_half_written_line_once_it_is_complete(row, run, tmp_path):
    lines = [json.dumps(row("1", id=f"r{number}")).encode() + b"\n" for number in range(4)]
    path, out = tmp_path / "growing.jsonl", tmp_path / "scored.jsonl"
    path.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    report, rows = run(str(path))
    assert (report.summary.failed, rows[2]["score"], rows[2]["id"]) == (1, None, None)
    assert "line 3: " in rows[2]["error"]
    assert rows[2]["error"].endswith("; without a line break at its end, it may be incomplete")
    half = out.read_bytes()
    report, _ = run(str(path), resume=True)  # it is still incomplete
    assert (report.resumed, report.scored, out.read_bytes()) == (3, 0, half)
    path.write_bytes(b"".join(lines))
    report, rows = run(str(path), resume=True)
    assert (report.resumed, report.scored, report.summary.failed) == (2, 2, 0)
    assert [(row["id"], row["score"]) for row in rows] == [(f"r{each}", 1.5) for each in range(4)]


def test_scoring_job_resume_scores_a_group_with_a_half_written_line_again(row, of_groups, tmp_path):
    rows = [row("1", id=f"r{number}", group="g") for number in range(3)]
    lines = [json.dumps(each).encode() + b"\n" for each in rows]
    path = tmp_path / "growing.jsonl"
    path.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    of_groups(str(path))
    path.write_bytes(b"".join(lines))
    report, _ = of_groups(str(path), resume=True)
    assert (report.resumed, report.scored, report.summary.failed) == (0, 3, 0)


def test_scoring_job_resume_rejects_fewer_rollouts(whole, row, write_rows, run, tmp_path):
    fewer = write_rows(mixed(row)[:2], "fewer.jsonl")
    with pytest.raises(RolloutError, match=r"has more rows than .*fewer\.jsonl, which has 2"):
        run(fewer, resume=True)
    assert (tmp_path / "scored.jsonl").read_bytes() == whole[1]


def test_scoring_job_resume_rejects_another_reward(whole, run, reward, tmp_path):
    other = reward("def reward(action, observation): return 1.0", "other")
    with pytest.raises(RolloutError, match="scored by reward"):
        run(whole[0], reward=other, resume=True)
    assert (tmp_path / "scored.jsonl").read_bytes() == whole[1]


def test_scoring_job_resume_scores_added_rollouts(whole, row, write_rows, run):
    more = write_rows([*mixed(row), row("1", id="new")], "more.jsonl")
    report, rows = run(more, resume=True)
    assert (report.resumed, report.scored, rows[-1]["id"]) == (7, 1, "new")


# Workers


@pytest.mark.edge
def test_scoring_job_workers_write_the_same_bytes_and_summary(row, write_rows, spec, tmp_path):
    rollouts = write_rows([line for _ in range(40) for line in mixed(row)])
    outs = [tmp_path / f"{workers}.jsonl" for workers in (1, 2)]
    one, two = (
        ScoringJob(rollouts, spec, str(out), workers, by="kind", passing=0.75).run()
        for workers, out in enumerate(outs, start=1)
    )
    assert outs[1].read_bytes() == outs[0].read_bytes()
    assert (two.scored, two.fingerprint) == (280, one.fingerprint)
    assert rounded(two.summary.to_dict()) == rounded(one.summary.to_dict())


def rounded(value):
    """A summary, without what depends on the order of additions."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.edge
def test_scoring_job_workers_count_the_same_parts_of_more_than_there_may_be(row, write_rows, spec):
    rollouts = write_rows([row("1", kind=f"kind {n % 150}") for n in range(3000)])
    one, two = (ScoringJob(rollouts, spec, None, each, by="kind").run() for each in (1, 2))
    counts = {name: part.rows for name, part in one.summary.parts.items()}
    assert counts == {f"kind {n}": 20 for n in range(100)} | {"(others)": 1000}
    assert {name: part.rows for name, part in two.summary.parts.items()} == counts


@pytest.mark.edge
def test_scoring_job_reports_a_dead_worker_and_keeps_the_rows_before(
    row, write_rows, run, reward, tmp_path
):
    spec = reward(
        """
        import os

        def reward(action, observation):
            if action.content == "die" and not os.path.exists(observation.metadata["repaired"]):
                os._exit(7)
            return 0.5
        """
    )
    repaired = str(tmp_path / "repaired")
    rows = [row("die" if i == 100 else "live", id=i, repaired=repaired) for i in range(120)]
    rollouts, out = write_rows(rows), tmp_path / "scored.jsonl"
    with pytest.raises(
        ScoringError, match=r"a worker process died .* finished are kept, continue with --resume"
    ):
        run(rollouts, reward=spec, workers=2)
    kept = out.read_bytes()
    assert kept == b"" or kept.endswith(b"\n")
    ids = [json.loads(line)["id"] for line in kept.splitlines()]
    assert ids == list(range(len(ids)))
    assert 0 < len(ids) <= 100
    Path(repaired).touch()
    report, rows = run(rollouts, reward=spec, resume=True)
    assert (report.resumed, [r["id"] for r in rows]) == (len(ids), list(range(120)))


# What must not be lost -------------------------------------------------------------------------


def test_scoring_job_keeps_earlier_results_until_the_first_row(row, write_rows, spec, tmp_path):
    out = tmp_path / "scored.jsonl"
    ScoringJob(write_rows([row("1")]), spec, str(out)).run()
    before = out.read_bytes()
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(RolloutError, match="it is empty"):
        ScoringJob(str(empty), spec, str(out)).run()
    assert out.read_bytes() == before


@pytest.mark.edge
def test_scoring_job_reports_a_reward_that_does_not_load_in_a_worker(row, write_rows, tmp_path):
    path = tmp_path / "here.py"
    path.write_text(
        "import multiprocessing\n"
        "if multiprocessing.parent_process():\n"
        "    raise RuntimeError('no accelerator in here')\n"
        "def reward(action, observation):\n"
        "    return 1.0\n"
    )
    with pytest.raises(LoadError, match="no accelerator in here"):
        ScoringJob(write_rows([row("1")]), f"{path}:reward", workers=2).run()


def test_scoring_job_makes_any_base_exception_a_failed_row(row, write_rows, tmp_path):
    path = tmp_path / "stops.py"
    path.write_text(
        "class Stop(BaseException):\n"
        "    pass\n"
        "def reward(action, observation):\n"
        "    if action.content == '0':\n"
        "        raise Stop('enough')\n"
        "    return 1.0\n"
    )
    out = tmp_path / "scored.jsonl"
    report = ScoringJob(
        write_rows([row("1"), row("0"), row("1")]), f"{path}:reward", str(out)
    ).run()
    assert (report.summary.rows, report.summary.failed) == (3, 1)
    assert json.loads(out.read_text().splitlines()[1])["error"] == "step 0: Stop: enough"


# Groups ----------------------------------------------------------------------------------------

FUNCTIONS = """
    from guerdon import EvaluateResult, StepOutput, reward_function

    @reward_function
    def best(rollouts_messages, ground_truths=None, **kwargs):
        if any(messages[-1].text == "fail" for messages in rollouts_messages):
            raise ValueError("no luck")
        if any(messages[-1].text == "few" for messages in rollouts_messages):
            return [1.0]
        lengths = [len(messages[-1].text) for messages in rollouts_messages]
        return [float(each == max(lengths)) * kwargs.get("scale", 1.0) for each in lengths]

    @reward_function
    async def alone(messages, *, bonus=0.0):
        turns = [each.text for each in messages if each.role == "assistant"]
        if turns[-1] == "fail":
            raise ValueError("no luck")
        steps = [StepOutput(step_index=turn, base_reward=float(len(text)), reason="why",
                            metrics={"words": {"x", "y", "z", text}})
                 for turn, text in enumerate(turns)]
        return EvaluateResult(score=float(len(turns[-1])) + bonus, step_outputs=steps)

    reward = best

    def place(step):
        return step.system_step_index

    def raises(step):
        raise LookupError("no such room")
"""
GIGPO = CreditSettings("gigpo", options={"gamma": 0.9})


@pytest.fixture
def functions(reward):
    """The path of a file with functions."""
    return reward(FUNCTIONS, "functions").removesuffix(":reward")


@pytest.fixture
def of_groups(functions, run):
    """Runs a job on groups; gives the report and the rows."""

    def of_groups(rollouts, name="best", **options):
        return run(rollouts, reward=f"{functions}:{name}", **options)

    return of_groups


def groups(row):
    """Groups of every kind, with invalid lines."""
    return [
        row("1", "22", id="a", group="g", kind="x"),
        row("333", id="b", group="g", kind="y"),
        row("1", id="c", group=["h", 1], kind="x"),
        b"{broken",
        {"id": "d", "group": ["h", 1], "messages": []},
        row("22", "1", id="e", group=["h", 1]),
        row("1", id="f"),
        b"",
        row("fail", id="i", group="i"),
        row("1", id="j", group="i", kind="y"),
        row("1", id="k", group={"a": 1}),
    ]


def test_scoring_job_batch_function_compares_the_rollouts_of_a_group(row, write_rows, of_groups):
    report, rows = of_groups(write_rows(groups(row)))
    assert [(r["id"], r["score"]) for r in rows] == [
        ("a", 0.0), ("b", 1.0), ("c", 1.0), (None, None), ("d", None), ("e", 1.0), ("f", 1.0),
        ("i", None), ("j", None), ("k", 1.0),
    ]  # fmt: skip
    assert [r["error"].partition(" (")[0] for r in rows[7:9]] == ["ValueError: no luck"] * 2
    found = report.summary.groups.to_dict()
    assert (found["groups"], found["rows_without_group"], found["dead_groups"]) == (4, 1, 1)
    assert [each["group"] for each in found["by_group"]] == ["g", ["h", 1], "i", {"a": 1}]


def test_scoring_job_continues_after_a_broken_line_in_a_group(row, write_rows, of_groups):
    lines = [row("1", id="a", group="g"), b"{", row("22", id="b", group="g")]
    report, rows = of_groups(write_rows(lines))
    assert [r["score"] for r in rows] == [0.0, None, 1.0]
    assert rows[1]["error"].startswith("line 2: RolloutError")
    assert (report.summary.failed, report.summary.groups.groups) == (1, 1)


def test_scoring_job_too_few_results_fail_only_their_group(row, write_rows, of_groups):
    lines = [row("few", group="g"), row("1", group="g"), row("1", group="h")]
    _, rows = of_groups(write_rows(lines))
    assert [r["score"] for r in rows] == [None, None, 1.0]
    assert "one result for each of 2 rollouts, got 1" in rows[0]["error"]


@pytest.mark.parametrize("workers", WORKERS)
def test_scoring_job_rejects_a_split_group_before_writing(
    row, write_rows, of_groups, tmp_path, workers
):
    (tmp_path / "scored.jsonl").write_bytes(b"precious\n")
    lines = [row("1", group="g"), row("1", group="h"), row("1", group="g")]
    with pytest.raises(RolloutError, match=r'group "g" is split: it ends at line 1') as caught:
        of_groups(write_rows(lines), workers=workers)
    assert caught.value.line == 3
    assert (tmp_path / "scored.jsonl").read_bytes() == b"precious\n"


@pytest.mark.parametrize("workers", WORKERS)
def test_scoring_job_keeps_the_rows_before_a_split_group_of_a_stream(
    row, write_rows, of_groups, tmp_path, monkeypatch, workers
):
    lines = [row("1", id=i, group=i // 4) for i in range(200)]
    path = write_rows([*lines, row("1", id="late", group=0), row("1", id="later", group=1)])
    with open(path, "rb") as file:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=file))
        with pytest.raises(RolloutError, match="group 0 is split") as caught:
            of_groups("-", workers=workers)
    assert caught.value.line == 201
    kept = (tmp_path / "scored.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["id"] for line in kept] == list(range(200))


def test_scoring_job_accepts_split_groups_if_nothing_compares_them(row, write_rows, of_groups):
    lines = [row("1", group="g"), row("1", group="h"), row("1", group="g")]
    report, rows = of_groups(write_rows(lines), "alone")
    assert [r["score"] for r in rows] == [1.0, 1.0, 1.0]
    assert report.summary.groups is None


def test_scoring_job_passes_parameters_and_adds_them_to_the_fingerprint(row, write_rows, of_groups):
    path = write_rows([row("1", group="g"), row("22", group="g")])
    one, rows = of_groups(path, parameters={"scale": 0.5})
    assert [r["score"] for r in rows] == [0.0, 0.5]
    other, _ = of_groups(path)
    assert one.fingerprint != other.fingerprint


def test_scoring_job_rejects_parameters_for_a_rubric(row, write_rows, run, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"a rubric has no parameters, got \['level'\]"):
        run(write_rows([row("1")]), parameters={"level": 1})
    assert not (tmp_path / "scored.jsonl").exists()


def test_scoring_job_credits_the_steps_of_a_rubric(row, write_rows, run):
    report, rows = run(
        write_rows([row("0.5", "1", id="a", group="g"), row("1", id="b", group="g")]), credit=GIGPO
    )
    assert [r["step_rewards"] for r in rows] == [[0.75, 1.5], [1.5]]
    assert [[s["return_to_go"] for s in r["steps"]] for r in rows] == [
        [pytest.approx(0.75 + 0.9 * 1.5), 1.5], [1.5],
    ]  # fmt: skip
    assert all(type(s["advantage"]) is float for r in rows for s in r["steps"])
    assert report.summary.groups.steps == 3


def test_scoring_job_credits_each_row_within_its_group(row, write_rows, of_groups):
    report, rows = of_groups(write_rows(groups(row)), "alone", credit=GIGPO)
    found = {r["id"]: [s["advantage"] for s in r.get("steps", ())] for r in rows}
    assert all(value != 0.0 for name in "abce" for value in found[name])
    assert (found["i"], found["j"], found["k"], found["d"]) == ([None], [0.0], [0.0], [])
    assert report.summary.groups.uncredited == 0


def test_scoring_job_notes_a_state_key_that_raises_and_keeps_the_scores(
    row, write_rows, of_groups, functions
):
    credit = CreditSettings("gigpo", f"{functions}:raises")
    path = write_rows([row("1", group="g"), row("22", group="g"), row("1", group="h")])
    report, rows = of_groups(path, "alone", credit=credit)
    assert [r["score"] for r in rows] == [1.0, 2.0, 1.0]
    assert all(
        "no credit: CreditError: the state key raised LookupError: no such room"
        in json.dumps(r["notes"])
        for r in rows
    )
    assert (report.summary.failed, report.summary.groups.uncredited) == (0, 2)


def test_scoring_job_combines_a_breakdown_with_groups(row, write_rows, of_groups):
    report, _ = of_groups(write_rows(groups(row)), "alone", credit=GIGPO, by="kind")
    parts = report.summary.parts
    assert {name: (part.rows, part.failed) for name, part in parts.items()} == {
        "x": (2, 0), "y": (2, 0), "(none)": (5, 2), "(unreadable)": (1, 1),
    }  # fmt: skip
    assert report.summary.groups.groups == 4


CREDITED = {"name": "alone", "credit": GIGPO, "by": "kind", "passing": 0.75}


def test_scoring_job_resumes_groups_cut_off_at_any_byte(row, write_rows, of_groups, tmp_path):
    rollouts, out = write_rows(groups(row)), tmp_path / "scored.jsonl"
    whole, _ = of_groups(rollouts, **CREDITED)
    data = out.read_bytes()
    ends = [at for at, byte in enumerate(data) if byte == 10]
    of_group = [line.count(b"\n") for line in grouped_lines(data)]
    starts = {sum(of_group[:place]) for place in range(len(of_group) + 1)}
    for size in sorted({*range(0, len(data), 61), *ends, *(end + 1 for end in ends)}):
        out.write_bytes(data[:size])
        report, _ = of_groups(rollouts, resume=True, **CREDITED)
        assert out.read_bytes() == data, size
        assert report.summary == whole.summary, size
        assert report.resumed == max(at for at in starts if at <= data[:size].count(b"\n")), size
        assert report.resumed + report.scored == 10


def grouped_lines(data):
    """The bytes of each group of `groups`: a broken line stays with the group around it."""
    lines = data.splitlines(keepends=True)
    sizes = [2, 4, 1, 2, 1]
    return [b"".join(lines[sum(sizes[:n]) : sum(sizes[: n + 1])]) for n in range(len(sizes))]


def test_scoring_job_resume_scores_a_grown_group_again(row, write_rows, of_groups):
    lines = [row("1", id="a", group="g"), row("22", id="b", group="h")]
    of_groups(write_rows(lines))
    report, rows = of_groups(write_rows([*lines, row("333", id="c", group="h")]), resume=True)
    assert (report.resumed, report.scored) == (1, 2)
    assert [(r["id"], r["score"]) for r in rows] == [("a", 1.0), ("b", 0.0), ("c", 1.0)]


def test_scoring_job_resume_keeps_no_group_in_part(row, write_rows, of_groups, tmp_path):
    rollouts = write_rows([row("1", id=i, group=i // 3) for i in range(9)])
    of_groups(rollouts)
    out = tmp_path / "scored.jsonl"
    lines = out.read_bytes().splitlines(keepends=True)
    kept = {}
    for count in range(10):
        out.write_bytes(b"".join(lines[:count]))
        kept[count] = of_groups(rollouts, resume=True)[0].resumed
    assert kept == {count: count // 3 * 3 for count in range(10)}


@pytest.mark.edge
def test_scoring_job_workers_write_the_same_bytes_and_summary_of_groups(
    row, write_rows, of_groups, tmp_path
):
    lines = []
    for copy in range(25):
        for line in groups(row):
            named = isinstance(line, dict) and "group" in line
            lines.append({**line, "group": [line["group"], copy]} if named else line)
    rollouts, out = write_rows(lines), tmp_path / "scored.jsonl"
    one, _ = of_groups(rollouts, **CREDITED)
    data = out.read_bytes()
    two, _ = of_groups(rollouts, workers=2, **CREDITED)
    assert out.read_bytes() == data
    assert rounded(two.summary.to_dict()) == rounded(one.summary.to_dict())
    assert two.fingerprint == one.fingerprint
    out.write_bytes(data[: len(data) // 2])
    again, _ = of_groups(rollouts, workers=2, resume=True, **CREDITED)
    assert out.read_bytes() == data
    assert rounded(again.summary.to_dict()) == rounded(one.summary.to_dict())


@pytest.mark.parametrize(
    "other",
    [
        {"credit": CreditSettings("gigpo", options={"gamma": 0.95})},
        {"credit": CreditSettings("gigpo")},
        {"credit": CreditSettings("hgpo", options={"gamma": 0.9})},
        {"credit": CreditSettings("gigpo", "history", {"gamma": 0.9})},
        {"credit": None},
        {"parameters": {"bonus": 0.5}},
        {"name": "best"},
    ],
    ids=["gamma", "no gamma", "method", "state key", "no credit", "parameter", "function"],
)
def test_scoring_job_resume_rejects_other_settings(row, write_rows, of_groups, tmp_path, other):
    rollouts = write_rows(groups(row))
    of_groups(rollouts, "alone", credit=GIGPO)
    before = (tmp_path / "scored.jsonl").read_bytes()
    with pytest.raises(RolloutError, match="scored by reward"):
        of_groups(rollouts, resume=True, **({"name": "alone", "credit": GIGPO} | other))
    assert (tmp_path / "scored.jsonl").read_bytes() == before


def test_scoring_job_resume_rejects_another_state_key_function(
    row, write_rows, run, functions, reward
):
    rollouts = write_rows(groups(row))
    keys = [reward(f"def reward(step): return {body}", name) for name, body in
            (("one", "step.system_step_index"), ("two", "0"))]  # fmt: skip
    spec = f"{functions}:alone"
    run(rollouts, reward=spec, credit=CreditSettings("gigpo", keys[0]))
    assert (
        run(rollouts, reward=spec, credit=CreditSettings("gigpo", keys[0]), resume=True)[0].scored
        == 0
    )
    with pytest.raises(RolloutError, match="scored by reward"):
        run(rollouts, reward=spec, credit=CreditSettings("gigpo", keys[1]), resume=True)


def test_scoring_job_invalid_credit_keeps_the_output(row, write_rows, of_groups, tmp_path):
    out = tmp_path / "scored.jsonl"
    out.write_bytes(b"precious\n")
    for settings in (("ppo",), ("gigpo", "first"), ("gigpo", "last", {"gamma": 2.0}), ("gae",)):
        with pytest.raises((InvalidArgumentError, CreditError)):
            of_groups(write_rows(groups(row)), credit=CreditSettings(*settings))
    assert out.read_bytes() == b"precious\n"


# Recordings of tau-bench


def recordings(tmp_path, records):
    path = tmp_path / "tau.json"
    path.write_text(json.dumps(records))
    return str(path)


def tau(task, trial, text):
    return {
        "task_id": task, "trial": trial, "reward": 1.0, "info": {"task": {"actions": []}},
        "traj": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}],
    }  # fmt: skip


def test_scoring_job_groups_scattered_tau_bench_trials(of_groups, tmp_path):
    records = [tau(task, trial, "x" * (task + trial)) for trial in range(2) for task in (1, 2)]
    report, rows = of_groups(recordings(tmp_path, records), format="tau-bench")
    assert [(r["id"], r["group"], r["score"]) for r in rows] == [
        ("1-0", 1, 0.0), ("1-1", 1, 1.0), ("2-0", 2, 0.0), ("2-1", 2, 1.0),
    ]  # fmt: skip
    assert report.summary.groups.groups == 2


def test_scoring_job_broken_tau_bench_records_are_failed_rows(of_groups, tmp_path):
    records = [tau(1, 0, "x"), None, tau(1, 1, "xx"), {"task_id": 2, "traj": []}, tau(2, 0, "x")]
    _, rows = of_groups(recordings(tmp_path, records), format="tau-bench")
    found = {r["id"]: (r["score"], r["error"] and r["error"].partition(": ")[0]) for r in rows}
    assert found == {
        "1-0": (0.0, None), "1-1": (1.0, None), None: (None, "line 2"), "2": (None, "line 4"),
        "2-0": (1.0, None),
    }  # fmt: skip


def test_scoring_job_rejects_an_empty_tau_bench_file(of_groups, tmp_path):
    with pytest.raises(RolloutError, match=r"tau\.json has no rollouts: it is empty"):
        of_groups(recordings(tmp_path, []), format="tau-bench")


def test_scoring_job_rejects_a_tau_bench_file_that_is_not_an_array(of_groups, tmp_path):
    (tmp_path / "scored.jsonl").write_bytes(b"precious\n")
    with pytest.raises(RolloutError, match="must be an array of records, got dict"):
        of_groups(recordings(tmp_path, {"task_id": 1}), format="tau-bench")
    assert (tmp_path / "scored.jsonl").read_bytes() == b"precious\n"


def test_scoring_job_rejects_an_unknown_format(row, write_rows, run):
    with pytest.raises(InvalidArgumentError, match="or 'atif', got 'csv'"):
        run(write_rows([row("1")]), format="csv")


def test_scoring_job_resumes_tau_bench_records(of_groups, tmp_path):
    records = [tau(task, trial, "x" * trial) for trial in range(3) for task in range(4)]
    path, out = recordings(tmp_path, records), tmp_path / "scored.jsonl"
    of_groups(path, format="tau-bench")
    data = out.read_bytes()
    for size in range(0, len(data), 97):
        out.write_bytes(data[:size])
        report, _ = of_groups(path, format="tau-bench", resume=True)
        assert (out.read_bytes(), report.resumed % 3) == (data, 0)


# What JSON can't hold


STRANGE = """
    import numpy as np
    from guerdon import EvaluateResult, StepOutput, reward_function

    class Unsayable:
        def __repr__(self):
            raise RuntimeError("no")

    class NoList:
        def tolist(self):
            raise RuntimeError("no")

    class Items(dict):
        def items(self):
            raise RuntimeError("no")

    class Unending(list):
        def __iter__(self):
            raise RuntimeError("no")

    def circle():
        round = {"name": "round"}
        round["self"] = [round]
        return round

    def circles():
        round = []
        round += [round, round]
        return round

    VALUES = {
        "nan": float("nan"), "inf": -float("inf"), "numpy": np.int64(3), "array": np.arange(2.0),
        "set": {"b", "a", "c"}, "keys": {(1, 2): {3: 4}}, "circle": circle(), "bytes": b"x",
        "unsayable": Unsayable(), "no list": NoList(), "key": {Unsayable(): 1},
        "circles": circles(), "items": Items(a=1), "list": Unending([1]),
        "half": "\\ud800", "huge": 10**400, "object": object,
    }

    @reward_function
    def reward(messages):
        what = messages[-1].text
        output = StepOutput(step_index=0, base_reward=0.5, metrics={what: VALUES[what]})
        return EvaluateResult(score=1.0, reason=what, metrics={what: VALUES[what]},
                              step_outputs=[output])
"""


@pytest.mark.parametrize(
    "what",
    ["nan", "inf", "numpy", "array", "set", "keys", "circle", "circles", "bytes", "unsayable",
     "key", "half", "huge", "object"],
)  # fmt: skip
def test_scoring_job_writes_metrics_that_json_does_not_have(row, write_rows, run, reward, what):
    spec = reward(STRANGE, "strange")
    report, rows = run(write_rows([row(what), row("numpy")]), reward=spec)
    assert [r["score"] for r in rows] == [1.0, 1.0]
    assert what in rows[0]["steps"][0]["metrics"]
    assert len(json.dumps(rows[0])) < 10_000
    assert rows[1]["steps"][0]["metrics"] == {"numpy": 3}
    assert rows[1]["components"] == {"numpy": 3.0}
    assert report.summary.failed == 0


@pytest.mark.parametrize("what", ["items", "list"])
def test_scoring_job_continues_after_a_metric_whose_container_raises(
    row, write_rows, run, reward, what
):
    spec = reward(STRANGE, "strange")
    _, rows = run(write_rows([row("numpy"), row(what), row("numpy")]), reward=spec)
    assert [r["score"] for r in rows[::2]] == [1.0, 1.0]
    assert rows[1]["is_score_valid"] or "RuntimeError: no" in rows[1]["error"]


def test_scoring_job_continues_after_a_metric_that_raises_when_read(row, write_rows, run, reward):
    _, rows = run(write_rows([row("no list"), row("numpy")]), reward=reward(STRANGE, "strange"))
    assert rows[0]["is_score_valid"] or "RuntimeError: no" in rows[0]["error"]
    assert rows[1]["score"] == 1.0


def test_scoring_job_writes_sets_in_a_stable_order(row, write_rows, run, reward):
    _, [found] = run(write_rows([row("set")]), reward=reward(STRANGE, "strange"))
    assert found["steps"][0]["metrics"] == {"set": ["a", "b", "c"]}


def test_scoring_job_writes_lone_surrogates_as_they_were_read(
    row, write_rows, of_groups, tmp_path, reward
):
    spec = reward(
        """
        def reward(messages):
            return {"score": 1.0, "reason": messages[-1].text, "metrics": {messages[-1].text: 1}}
        """,
        "halves",
    )
    rollouts = write_rows([row("\ud800", id="\udfff", group=["\udc00"], kind="\ud800")])
    report = ScoringJob(rollouts, spec, str(tmp_path / "out.jsonl"), by="kind", credit=GIGPO).run()
    [found] = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert (found["id"], found["group"], found["reason"]) == ("\udfff", ["\udc00"], "\ud800")
    assert found["components"] == {"\ud800": 1.0}
    again = ScoringJob(
        rollouts, spec, str(tmp_path / "out.jsonl"), by="kind", credit=GIGPO, resume=True
    ).run()
    assert (again.resumed, again.summary) == (1, report.summary)


# Episodes that failed


FAILED = {"ended": "error", "error": "step 1: OSError: the game is down"}


def test_scoring_job_failed_episode_has_no_score_and_an_error(row, write_rows, run):
    path = write_rows([row("1", id="a", group="g", **FAILED), row("1", id="b", ended="done")])
    report, [failed, other] = run(path)
    assert (failed["id"], failed["group"]) == ("a", "g")
    assert (failed["score"], failed["is_score_valid"], failed["step_rewards"]) == (
        None,
        False,
        None,
    )
    assert failed["error"].endswith(f"the episode ended with an error: {FAILED['error']}")
    assert failed["error"].startswith("line 1: ")
    assert other["score"] == 1.5
    assert (report.summary.failed, report.summary.score.value) == (1, 1.5)


def test_scoring_job_score_failed_scores_failed_episodes(row, write_rows, run):
    path = write_rows([row("1", id="a", **FAILED), row("no number", id="b", **FAILED)])
    report, [scored, failed] = run(path, score_failed=True)
    assert (scored["score"], scored["is_score_valid"], scored["error"]) == (1.5, True, None)
    assert "the episode ended" not in failed["error"]
    assert report.summary.failed == 1


@pytest.mark.parametrize("error", [None, "", 0], ids=repr)
def test_scoring_job_failed_episode_without_an_error_is_invalid(row, write_rows, run, error):
    _, [failed] = run(write_rows([row("1", ended="error", error=error)]))
    assert failed["error"].endswith("the episode ended with an error: unknown")


@pytest.mark.parametrize("ended", ["done", "max_steps", "errors", None, True], ids=repr)
def test_scoring_job_scores_episodes_that_ended_otherwise(row, write_rows, run, ended):
    _, [scored] = run(write_rows([row("1", ended=ended, error="of something else")]))
    assert scored["score"] == 1.5


@pytest.mark.parametrize(
    ("workers", "score_failed"),
    [(1, False), (1, True), pytest.param(2, False, marks=pytest.mark.edge)],
)
def test_scoring_job_resumes_failed_episodes(row, write_rows, run, tmp_path, score_failed, workers):
    path = write_rows([row(f"0.{i}", id=i, **(FAILED if i % 2 else {})) for i in range(6)])
    out = tmp_path / "scored.jsonl"
    whole, _ = run(path, score_failed=score_failed)
    full = out.read_bytes()
    for rows in range(6):
        out.write_bytes(b"".join(full.splitlines(keepends=True)[:rows]))
        report, _ = run(path, resume=True, score_failed=score_failed, workers=workers)
        assert out.read_bytes() == full
        assert report.resumed == rows
        assert report.summary.to_dict() == whole.summary.to_dict()


@pytest.mark.parametrize("score_failed", [False, True])
def test_scoring_job_score_failed_changes_the_fingerprint(row, write_rows, run, score_failed):
    path = write_rows([row("1", id="a", **FAILED), row("1", id="b")])
    run(path, score_failed=score_failed)
    with pytest.raises(RolloutError):
        run(path, resume=True, score_failed=not score_failed)


def test_scoring_job_failed_episode_is_not_compared_with(row, write_rows, of_groups):
    rows = [row("a", group="g", **FAILED), row("bb", group="g"), row("c", group="g")]
    _, [failed, best, other] = of_groups(write_rows(rows), credit=CreditSettings("grpo"))
    assert (failed["score"], "steps" in failed) == (None, False)
    assert (best["score"], other["score"]) == (1.0, 0.0)
    assert best["steps"][0]["advantage"] == -other["steps"][0]["advantage"] > 0


# Episodes that begin with examples

EXAMPLED = """
    from guerdon import EvaluateResult, StepOutput, reward_function

    @reward_function
    def reward(messages):
        turns = [message for message in messages if message.role == "assistant"]
        outputs = [StepOutput(step_index=turn, base_reward=len(each.text), reason=each.text)
                   for turn, each in enumerate(turns)]
        return EvaluateResult(score=sum(o.base_reward for o in outputs[1:]), step_outputs=outputs)
"""


def exampled(row):
    """Two episodes of a group, of which the first turn is an example."""
    return [
        row("example", "a", "bbb", id="a", group="g", first_turn=1, ended="done"),
        row("example", "cc", id="b", group="g", first_turn=1, ended="done"),
    ]


def test_scoring_job_numbers_steps_after_examples(row, write_rows, run, reward):
    _, [first, second] = run(write_rows(exampled(row)), reward=reward(EXAMPLED))
    assert [each["step_rewards"] for each in (first, second)] == [[1.0, 3.0], [2.0]]
    assert first["steps"] == [
        {"step_index": 1, "base_reward": 1.0, "reason": "a"},
        {"step_index": 2, "base_reward": 3.0, "reason": "bbb"},
    ]
    assert [each["step_index"] for each in second["steps"]] == [1]
    assert ["step 0" in note for note in first["notes"] + second["notes"]].count(True) == 2


@pytest.mark.parametrize("method", ["gigpo", "grpo"])
@pytest.mark.parametrize("kind", ["function", "rubric", "rubric as function"])
def test_scoring_job_credits_the_turns_after_examples_like_the_library(
    row, write_rows, run, reward, kind, method
):
    spec = reward(
        {
            "function": EXAMPLED,
            "rubric": "def reward(action, observation):\n    return len(action.content)\n",
            "rubric as function": """
                from guerdon.rubrics import as_reward_function

                @as_reward_function
                def reward(action, observation):
                    return len(action.content)
            """,
        }[kind]
    )
    rows = exampled(row)
    _, scored = run(write_rows(rows), reward=spec, credit=CreditSettings(method))
    assert [each["score"] for each in scored] == [4.0, 2.0]
    turns = [[step["step_index"] for step in each["steps"]] for each in scored]
    assert turns == [[1, 2], [1]]
    recorded = {each["id"]: Rollout.from_row(each).to_step_data() for each in rows}
    results = [
        EvaluateResult(
            score=each["score"],
            step_outputs=[
                StepOutput(step_index=step["step_index"], base_reward=step["base_reward"])
                for step in each["steps"]
            ],
        )
        for each in scored
    ]
    batch = RLDataAligner(strict=True).align_data_for_rl_processing(results, recorded, ["a", "b"])
    apply_credit(batch, method)
    assert [[step["advantage"] for step in each["steps"]] for each in scored] == [
        [step.advantage for step in steps] for steps in batch.step_lists
    ]
    assert batch.step_lists[0][0].step_info["assistant_turn_index"] == 1


@pytest.mark.parametrize("workers", WORKERS)
def test_scoring_job_finds_an_estimator_that_the_reward_registers(
    row, write_rows, run, reward, workers, monkeypatch
):
    own = dict(ESTIMATORS._entries)  # what the reward registers is gone after the test
    monkeypatch.setattr(ESTIMATORS, "_entries", own)
    spec = reward(
        f"""
            from guerdon.credit import Credit, ESTIMATORS

            def scores(batch, *, scale=1.0):
                episode = scale * batch.scores[batch.trajectory]
                return Credit.of(batch, episode, episode=episode)

            ESTIMATORS.register("scaled_scores_{workers}", scores)

            def reward(action, observation):
                return float(len(action.content))
        """
    )
    credit = CreditSettings(f"scaled_scores_{workers}", options={"scale": 2.0})
    rows = [row("a", "bb", id="a", group="g"), row("ccc", id="b", group="g")]
    _, scored = run(write_rows(rows), reward=spec, credit=credit, workers=workers)
    assert [[step["advantage"] for step in each["steps"]] for each in scored] == [
        [6.0, 6.0],
        [6.0],
    ]


# Pipelines

RUBRICS = """
    from guerdon import Rubric

    class Known(Rubric):
        score_range = (0.0, 2.0)

        def forward(self, action, observation):
            return float(action.content)

    class Unknown(Rubric):
        def forward(self, action, observation):
            return float(action.content)
"""


@pytest.fixture
def pipeline(tmp_path, reward):
    """Writes the file of a pipeline."""

    def pipeline(rubric, normalize=True):
        module = reward(RUBRICS).partition(":")[0]
        entry = {"name": "number", "rubric": f"{module}:{rubric}", "weight": 3.0,
                 "schedule": {"piecewise": [[0, 1.0], [10, 0.0]]}}  # fmt: skip
        path = tmp_path / f"{rubric}.json"
        config = {"schema_version": "1.0", "normalize": normalize, "per_turn": [entry]}
        path.write_text(json.dumps(config))
        return str(path)

    return pipeline


@pytest.mark.parametrize("workers", WORKERS)
def test_scoring_job_scores_a_reward_file_at_a_position_of_its_schedules(
    row, write_rows, run, pipeline, workers, tmp_path
):
    rollouts, file = write_rows([row("2", id=i) for i in range(20)]), pipeline("Known")
    out = str(tmp_path / "scored.jsonl")
    for at, score in ((None, 3.0), (5, 1.5), (10, 0.0)):
        report, rows = run(rollouts, reward=file, workers=workers, at=at)
        assert [each["score"] for each in rows] == [score] * 20
        Path(out).write_bytes(b"".join(Path(out).read_bytes().splitlines(True)[:7]))
        again, resumed = run(rollouts, reward=file, workers=workers, at=at, resume=True)
        assert (again.resumed, resumed) == (7, rows)
        assert report.fingerprint == again.fingerprint


@pytest.mark.edge
@pytest.mark.parametrize(
    "options", [{"workers": 2}, {"resume": True}, {"workers": 2, "resume": True}], ids=str
)
def test_scoring_job_observed_ranges_require_one_uninterrupted_process(
    row, write_rows, run, pipeline, options, tmp_path
):
    rollouts = write_rows([row(str(i), id=i) for i in range(4)])
    out = tmp_path / "scored.jsonl"
    run(rollouts, reward=pipeline("Unknown", normalize="observed"))
    before = out.read_bytes()
    with pytest.raises(InvalidArgumentError, match="normalizes number by the scores seen before"):
        run(rollouts, reward=pipeline("Unknown", normalize="observed"), **options)
    assert out.read_bytes() == before
    report, _ = run(rollouts, reward=pipeline("Unknown", normalize=False), workers=2)
    assert report.scored == 4


# One writer --------------------------------------------------------------------------------------


def test_scoring_job_refuses_a_file_that_another_run_writes(tmp_path):
    rollouts, out = tmp_path / "rollouts.jsonl", tmp_path / "scored.jsonl"
    rollouts.write_text(json.dumps({"id": 1, "messages": [{"role": "assistant", "content": "x"}]}))
    job = ScoringJob(str(rollouts), "guerdon:LengthBounds", out=str(out))
    job.run()
    before = out.read_bytes()
    with RowWriter(str(out)):  # as that of a run that has written nothing yet
        for resume in (False, True):
            with pytest.raises(ScoringError, match=r"process \d+, .* is writing to this file"):
                replace(job, resume=resume).run()
    assert out.read_bytes() == before
    assert replace(job, resume=True).run().resumed == 1


@pytest.mark.edge
def test_scoring_job_in_processes_makes_no_semaphores(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a semaphore with a name stays if all processes are killed")

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refuse)
    rollouts = tmp_path / "rollouts.jsonl"
    lines = [{"id": each, "messages": [{"role": "assistant", "content": "x"}]} for each in range(9)]
    rollouts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = ScoringJob(str(rollouts), "guerdon:LengthBounds", workers=2)
    assert job.run().scored == 9
