"""Job: a file of rollouts in, a file of result rows out."""

import json
from pathlib import Path

import pytest

from guerdon.errors import (
    InvalidArgumentError,
    OutputError,
    ResumeError,
    RolloutError,
    SpecError,
    WorkerError,
)
from guerdon.rollouts import Job

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
        report = Job(rollouts, options.pop("reward", spec), out, **options).run()
        return report, [json.loads(line) for line in Path(out).read_bytes().splitlines()]

    return run


def mixed(row):
    """Rows of every kind, with lines that are none."""
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


def test_rows_keep_their_order(row, write_rows, run):
    report, rows = run(write_rows([row("1", id=i, group=-i) for i in range(200)]))
    assert [r["id"] for r in rows] == list(range(200))
    assert [r["group"] for r in rows] == [-i for i in range(200)]
    assert (report.scored, report.resumed, report.interrupted) == (200, 0, False)


def test_a_row_is_what_the_scorer_gives(row, write_rows, run):
    report, rows = run(write_rows([row("0.5", "1", id="a", group="g")]))
    assert rows == [
        {
            "id": "a",
            "group": "g",
            "score": 2.25,
            "is_score_valid": True,
            "components": {
                "rubric_0": 1.0,
                "rubric_0.rubric": 1.0,
                "rubric_1": 1.0,
                "rubric_0/mean": 0.75,
                "rubric_0.rubric/mean": 0.75,
                "rubric_1/mean": 0.75,
            },
            "step_rewards": [0.75, 1.5],
            "error": None,
            "fingerprint": report.fingerprint,
        }
    ]


def test_a_broken_line_is_reported_and_the_rest_goes_on(row, write_rows, run):
    lines = [row("1", id="a"), b"{", b"\xff\xfe", b"", b"[]", row("1", id="b")]
    report, rows = run(write_rows(lines))
    assert [r["score"] for r in rows] == [1.5, None, None, None, 1.5]
    assert [r["error"] and r["error"].partition(": ")[0] for r in rows] == [
        None, "line 2", "line 3", "line 5", None,
    ]  # fmt: skip
    assert (report.summary.failed, report.summary.failures) == (3, {"RolloutError": 3})


def test_a_row_that_is_no_rollout_keeps_its_id(write_rows, run):
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
def test_strange_lines_never_end_a_run(row, write_rows, run, line):
    _, rows = run(write_rows([row("1", id="a"), line, row("1", id="b")]))
    assert [r["score"] for r in rows[::2]] == [1.5, 1.5]
    assert len(rows) == 3


def test_an_error_with_half_a_character_never_ends_a_run(row, write_rows, run, reward):
    spec = reward(
        r"""
        def reward(action, observation):
            raise ValueError("\ud800")
        """
    )
    _, rows = run(write_rows([row("1"), row("1")]), reward=spec)
    assert [r["is_score_valid"] for r in rows] == [False, False]


def test_results_that_json_can_not_hold_are_failed_rows(row, write_rows, run, reward):
    spec = reward(
        """
        def reward(action, observation):
            return float(action.content)
        """
    )
    _, rows = run(write_rows([row("1e308", "1e308", id=1), row("1", id=2)]), reward=spec)
    assert [r["score"] for r in rows] == [None, 1.0]


@pytest.mark.parametrize("data", [b"", b"\n \n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_an_empty_file_is_an_error(tmp_path, run, data):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(data)
    with pytest.raises(RolloutError, match=r"rollouts\.jsonl holds no rollouts: it is empty"):
        run(str(path))


def test_a_file_that_is_not_there_is_an_error_and_the_output_stays(tmp_path, run):
    out = tmp_path / "scored.jsonl"
    out.write_bytes(b"precious\n")
    with pytest.raises(RolloutError, match=r"can't read .*absent\.jsonl: No such file"):
        run(str(tmp_path / "absent.jsonl"))
    assert out.read_bytes() == b"precious\n"


def test_a_reward_that_can_not_be_loaded_leaves_the_output_alone(tmp_path, row, write_rows, run):
    out = tmp_path / "scored.jsonl"
    out.write_bytes(b"precious\n")
    with pytest.raises(SpecError):
        run(write_rows([row("1")]), reward=f"{tmp_path}/absent.py:reward")
    assert out.read_bytes() == b"precious\n"


@pytest.mark.parametrize("workers", [0, -1])
def test_less_than_one_worker_is_refused(row, write_rows, run, workers):
    with pytest.raises(InvalidArgumentError, match="it takes at least 1"):
        run(write_rows([row("1")]), workers=workers)


@pytest.mark.parametrize("way", ["same", "symlink", "hardlink", "dotted"])
def test_the_rollouts_are_never_written_over(tmp_path, row, write_rows, run, way):
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
    with pytest.raises(InvalidArgumentError, match="is the file of the rollouts"):
        run(str(rollouts), out=str(other))
    assert rollouts.read_bytes() == before


def test_a_full_disk_is_an_error(row, write_rows, spec):
    with pytest.raises(OutputError, match="No space left"):
        Job(write_rows([row("1")]), spec, "/dev/full").run()


def test_without_an_output_there_is_a_summary(row, write_rows, spec):
    report = Job(write_rows([row("1"), row("0")]), spec).run()
    assert (report.summary.rows, report.summary.zeros, report.summary.score.value) == (2, 1, 0.75)


def test_the_summary_is_broken_down_by_a_column(row, write_rows, run):
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


def test_progress_ends_with_all_rows_and_bytes(row, write_rows, run):
    told = []
    path = write_rows([row("1") for _ in range(300)])
    run(path, progress=lambda rows, read: told.append((rows, read)))
    assert told[-1] == (300, Path(path).stat().st_size)
    assert told == sorted(told)


# Going on


@pytest.fixture
def whole(row, write_rows, run, tmp_path):
    """The rollouts, and the output of a run that nothing disturbed."""
    rollouts = write_rows(mixed(row))
    report, _ = run(rollouts, by="kind", passing=0.75)
    return rollouts, (tmp_path / "scored.jsonl").read_bytes(), report.summary


def test_a_run_that_was_cut_off_at_any_byte_goes_on_to_the_same_file(whole, tmp_path, spec):
    rollouts, data, summary = whole
    out = tmp_path / "again.jsonl"
    ends = [at for at, byte in enumerate(data) if byte == 10]
    for size in sorted({*range(0, len(data), 13), *ends, *(end + 1 for end in ends)}):
        out.write_bytes(data[:size])
        report = Job(rollouts, spec, str(out), resume=True, by="kind", passing=0.75).run()
        assert out.read_bytes() == data, size
        assert report.summary == summary, size
        assert report.resumed == data[:size].count(b"\n")
        assert report.resumed + report.scored == 7


def test_the_summary_after_going_on_counts_all_rows(whole, tmp_path, spec):
    rollouts, data, _ = whole
    fresh = Job(rollouts, spec).run()
    out = tmp_path / "scored.jsonl"
    out.write_bytes(data[: len(data) // 2])
    assert Job(rollouts, spec, str(out), resume=True).run().summary == fresh.summary


def test_going_on_without_a_file_begins(whole, tmp_path, spec):
    rollouts, data, _ = whole
    out = tmp_path / "fresh.jsonl"
    assert Job(rollouts, spec, str(out), resume=True).run().resumed == 0
    assert out.read_bytes() == data


@pytest.mark.parametrize("out", [None, "-"])
def test_going_on_needs_a_file(whole, spec, out):
    with pytest.raises(InvalidArgumentError, match="resuming needs the file"):
        Job(whole[0], spec, out, resume=True).run()


def test_going_on_with_other_rollouts_is_refused(whole, row, write_rows, run, tmp_path):
    other = write_rows([row("1", id=f"other {i}") for i in range(9)], "other.jsonl")
    with pytest.raises(ResumeError, match="it was made from other rollouts"):
        run(other, resume=True)
    assert (tmp_path / "scored.jsonl").read_bytes() == whole[1]


def test_going_on_with_fewer_rollouts_is_refused(whole, row, write_rows, run, tmp_path):
    fewer = write_rows(mixed(row)[:2], "fewer.jsonl")
    with pytest.raises(ResumeError, match=r"has more rows than .*fewer\.jsonl, which has 2"):
        run(fewer, resume=True)
    assert (tmp_path / "scored.jsonl").read_bytes() == whole[1]


def test_going_on_with_another_reward_is_refused(whole, run, reward, tmp_path):
    other = reward("def reward(action, observation): return 1.0", "other")
    with pytest.raises(ResumeError, match="scored by reward"):
        run(whole[0], reward=other, resume=True)
    assert (tmp_path / "scored.jsonl").read_bytes() == whole[1]


def test_going_on_with_more_rollouts_scores_those(whole, row, write_rows, run):
    more = write_rows([*mixed(row), row("1", id="new")], "more.jsonl")
    report, rows = run(more, resume=True)
    assert (report.resumed, report.scored, rows[-1]["id"]) == (7, 1, "new")


# Workers


def test_workers_give_the_same_bytes_and_the_same_summary(row, write_rows, spec, tmp_path):
    rollouts = write_rows([line for _ in range(40) for line in mixed(row)])
    outs = [tmp_path / f"{workers}.jsonl" for workers in (1, 2)]
    one, two = (
        Job(rollouts, spec, str(out), workers, by="kind", passing=0.75).run()
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


def test_a_worker_that_dies_is_an_error_and_the_rows_before_are_kept(
    row, write_rows, run, reward, tmp_path
):
    spec = reward(
        """
        import os

        def reward(action, observation):
            if action.content == "die" and not os.path.exists(observation.metadata["mended"]):
                os._exit(7)
            return 0.5
        """
    )
    mended = str(tmp_path / "mended")
    rows = [row("die" if i == 100 else "live", id=i, mended=mended) for i in range(120)]
    rollouts, out = write_rows(rows), tmp_path / "scored.jsonl"
    with pytest.raises(
        WorkerError, match=r"a worker process died .* finished are kept, and --resume"
    ):
        run(rollouts, reward=spec, workers=2)
    kept = out.read_bytes()
    assert kept == b"" or kept.endswith(b"\n")
    ids = [json.loads(line)["id"] for line in kept.splitlines()]
    assert ids == list(range(len(ids)))
    assert 0 < len(ids) <= 100
    Path(mended).touch()
    report, rows = run(rollouts, reward=spec, resume=True)
    assert (report.resumed, [r["id"] for r in rows]) == (len(ids), list(range(120)))


# What must not be lost -------------------------------------------------------------------------


def test_results_that_stand_there_stay_until_there_is_a_row(row, write_rows, spec, tmp_path):
    out = tmp_path / "scored.jsonl"
    Job(write_rows([row("1")]), spec, str(out)).run()
    before = out.read_bytes()
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(RolloutError, match="it is empty"):
        Job(str(empty), spec, str(out)).run()
    assert out.read_bytes() == before


def test_a_reward_that_loads_only_here_is_told_as_it_is(row, write_rows, tmp_path):
    path = tmp_path / "here.py"
    path.write_text(
        "import multiprocessing\n"
        "if multiprocessing.parent_process():\n"
        "    raise RuntimeError('no accelerator in here')\n"
        "def reward(action, observation):\n"
        "    return 1.0\n"
    )
    with pytest.raises(SpecError, match="no accelerator in here"):
        Job(write_rows([row("1")]), f"{path}:reward", workers=2).run()


def test_an_exception_that_is_no_exception_is_a_failed_row(row, write_rows, tmp_path):
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
    report = Job(write_rows([row("1"), row("0"), row("1")]), f"{path}:reward", str(out)).run()
    assert (report.summary.rows, report.summary.failed) == (3, 1)
    assert json.loads(out.read_text().splitlines()[1])["error"] == "step 0: Stop: enough"
