"""guerdon score: the real command, from end to end."""

import array
import contextlib
import fcntl
import json
import os
import select
import signal
import termios
import textwrap

import pytest

from examples.tau_chat.scripted_model import ScriptedModel
from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real processes

KEYS = [
    "id", "group", "score", "is_score_valid", "components", "step_rewards", "error", "fingerprint",
]  # fmt: skip
PATIENCE = 60  # seconds


@pytest.fixture(autouse=True)
def _rewards(rewards):
    pass


def ids(data):
    """The ids of result rows, all of them whole."""
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line)["id"] for line in data.splitlines()]


def test_score_exits_with_0_and_prints_a_table(guerdon, rows, tmp_path):
    rows(["1", "0", "0.75"])
    done = guerdon(
        "score", "rollouts.jsonl", "--reward", "reward.py:reward", "--out", "scored.jsonl",
        "--passing", "0.75",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_bytes().splitlines()]
    assert [list(row) for row in scored] == [[*KEYS, "stopped_by"]] * 3
    assert [row["score"] for row in scored] == [1.0, 0.0, 0.75]
    assert scored[0]["components"] == {
        "rubric_0": 1.0, "rubric_0.rubric": 1.0, "rubric_1": 0.0, "rubric_1.rubric_0": 0.0,
    }  # fmt: skip
    table = " ".join(done.stdout.split())
    for expected in ("rows 3", "mean score 0.583", "scored 0 1", "failed 0", "66.7%", "3 rows in"):
        assert expected in table
    assert "scored.jsonl" in table


def test_score_exits_with_1_and_counts_failures_apart_from_zeros(guerdon, rows):
    rows(["1", "x", "0"])
    done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:reward")
    assert done.returncode == 1
    table = " ".join(done.stdout.split())
    for expected in ("rows 3", "scored 0 1", "failed 1", "ValueError 1"):
        assert expected in table


def test_score_prints_the_summary_as_json(guerdon, rows):
    rows(["1", "x", "0"], kind="k")
    done = guerdon(
        "score", "rollouts.jsonl", "-r", "reward.py:reward", "--json", "--by", "kind",
        "--passing", "1",
    )  # fmt: skip
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    varying = {"seconds", "rows_per_second", "fingerprint"}
    assert {key: summary[key] for key in summary.keys() - varying} == {
        "reward": "reward.py:reward",
        "rubrics": {
            "rubric_0": "Gate",
            "rubric_0.rubric": "Number",
            "rubric_1": "Sequential",
            "rubric_1.rubric_0": "polite",
            "rubric_1.rubric_1": "Number",
        },
        "interrupted": False,
        "resumed": 0,
        "rows": 3,
        "valid": 2,
        "failed": 1,
        "zeros": 1,
        "mean_score": 0.5,
        "passing": 1.0,
        "accuracy": 0.5,
        "components": {
            "rubric_0": {"mean": 0.5, "rows": 2},
            "rubric_0.rubric": {"mean": 0.5, "rows": 2},
            "rubric_1": {"mean": 0.0, "rows": 2},
            "rubric_1.rubric_0": {"mean": 0.0, "rows": 2},
        },
        "stopped": {"rubric_0": 1, "rubric_1.rubric_0": 2},
        "failures": {"ValueError": 1},
        "dealt_with": 0,
        "first_failures": summary["first_failures"],
        "noted": 0,
        "by": {"k": summary["by"]["k"]},
    }
    assert (summary["by"]["k"]["rows"], summary["by"]["k"]["accuracy"]) == (3, 0.5)


def test_score_reads_and_writes_pipes(guerdon, rows):
    data = rows(["1", "0"])
    done = guerdon("score", "-", "-r", "reward.py:reward", "-o", "-", input=data)
    assert done.returncode == 0
    assert ids(done.stdout.encode()) == [0, 1]
    assert "mean score" in done.stderr


def test_score_writes_rows_and_json_summary_to_two_streams(guerdon, rows):
    data = rows(["1", "0"])
    done = guerdon("score", "-", "-r", "reward.py:reward", "-o", "-", "--json", input=data)
    assert ids(done.stdout.encode()) == [0, 1]
    assert json.loads(done.stderr)["rows"] == 2


def test_score_reports_broken_lines_by_number(guerdon, rows):
    data = rows(["1", "0"]).replace(b"\n", b"\n{broken\n", 1)
    done = guerdon("score", "-", "-r", "reward.py:reward", "-o", "-", input=data)
    assert done.returncode == 1
    scored = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["score"] for row in scored] == [1.0, None, 0.0]
    assert scored[1]["error"].startswith("line 2: RolloutError: the line is not valid JSON")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["absent.jsonl"], "can't read absent.jsonl: No such file or directory"),
        (["empty.jsonl"], "empty.jsonl has no rollouts: it is empty"),
        (["rollouts.jsonl", "--resume"], "--resume requires the file to continue: --out FILE"),
        (["rollouts.jsonl", "-o", "rollouts.jsonl"], "must not be the file of the rollouts"),
        (["rollouts.jsonl", "-o", "absent/x.jsonl"], "can't write absent/x.jsonl: No such file"),
        (["rollouts.jsonl", "-o", "/dev/full"], "can't write /dev/full: No space left on device"),
        (["."], "can't read .: Is a directory"),
    ],
)
def test_score_exits_with_2_and_one_line_if_it_can_not_run(rows, tmp_path, args, message):
    rows(["1"])
    (tmp_path / "empty.jsonl").touch()
    done = run_inside(tmp_path, "score", *args, "-r", "reward.py:reward")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_score_shows_the_traceback_of_a_reward_that_does_not_import(guerdon, rows, tmp_path):
    rows(["1"])
    (tmp_path / "broken.py").write_text("raise OSError('no model')\n")
    done = guerdon("score", "rollouts.jsonl", "-r", "broken.py:reward")
    assert (done.returncode, done.stdout) == (2, "")
    assert f'File "{tmp_path}/broken.py", line 1, in <module>' in done.stderr
    assert "OSError: no model" in done.stderr
    assert done.stderr.count("File ") == 1


@pytest.mark.parametrize("out", [["-o", "-"], []])
def test_score_reports_a_full_disk_without_a_traceback(guerdon, rows, out):
    rows(["1"] * 20)
    with open("/dev/full", "wb") as full:
        done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:reward", *out, stdout=full)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_score_ends_quietly_if_the_reader_exits(started, rows, workers):
    rows(["1"] * 5000)
    process = started("score", "rollouts.jsonl", "-r", "reward.py:reward", "-o", "-", "-w", workers)
    assert json.loads(process.stdout.readline())["id"] == 0
    process.stdout.close()
    with contextlib.closing(process.stderr):
        errors = process.stderr.read().decode()
    process.stdout = process.stderr = None
    assert process.wait(PATIENCE) == 1
    assert errors == ""


def test_score_fails_the_row_of_a_reward_that_exits(guerdon, rows, tmp_path):
    rows(["1", "x", "0"])
    (tmp_path / "exits.py").write_text(
        "import sys\ndef reward(action, observation):\n"
        "    return float(action.content) if action.content != 'x' else sys.exit(0)\n"
    )
    done = guerdon("score", "rollouts.jsonl", "-r", "exits.py:reward", "-o", "-")
    assert done.returncode == 1
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == [1.0, None, 0.0]


def test_score_keeps_prints_of_a_reward_off_the_rows(guerdon, rows, tmp_path):
    rows(["1", "0"])
    (tmp_path / "prints.py").write_text(
        "def reward(action, observation):\n    print('debug')\n    return 1.0\n"
    )
    done = guerdon("score", "rollouts.jsonl", "-r", "prints.py:reward", "-o", "-")
    assert ids(done.stdout.encode()) == [0, 1]
    assert "debug" in done.stderr


JUDGED = """
    from guerdon import LLMJudge

    reward = LLMJudge("How is the style? {action}", "style_judge")
"""
JUDGED_FILE = """
    schema_version: "1.0"
    per_turn:
      - {name: style, rubric: judged.py:reward, weight: 1.0}
"""


@pytest.mark.parametrize("reward", ["judged.py:reward", "reward.yaml"])
def test_score_services_are_those_of_the_judges(tmp_path, rows, reward):
    rows(["x = 1"])
    (tmp_path / "judged.py").write_text(textwrap.dedent(JUDGED))
    (tmp_path / "reward.yaml").write_text(textwrap.dedent(JUDGED_FILE))
    prints = set()
    for name in ("one", "other"):
        with ScriptedModel(["Score: 0.75"]) as model:
            (tmp_path / "services.yaml").write_text(
                f"style_judge: {{type: openai_llm, endpoint: '{model.endpoint}', model: {name}}}"
            )
            args = ("rollouts.jsonl", "-r", reward, "--services", "services.yaml", "--json")
            done = run_inside(tmp_path, "score", *args, "-o", "scored.jsonl")
            assert done.returncode == 0, done.stderr
        row = json.loads((tmp_path / "scored.jsonl").read_text())
        assert row["score"] == 0.75
        prints.add(row["fingerprint"])
    assert len(prints) == 2


def test_score_refuses_services_of_a_reward_that_cannot_use_them(tmp_path, rows):
    rows(["x = 1"])
    (tmp_path / "services.yaml").write_text("{}")
    (tmp_path / "functions.py").write_text(
        "from guerdon import reward_function\n"
        "@reward_function\n"
        "def reward(messages, **kwargs):\n"
        "    return 1.0\n"
    )
    score = ("score", "rollouts.jsonl", "--services", "services.yaml", "-r")
    for args, message in (
        (["functions.py:reward"], "`services` requires a rubric or a reward file"),
        (["reward.py:reward", "--sandbox", "process"], "requires a reward that runs without a sa"),
    ):
        done = run_inside(tmp_path, *score, *args)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())


def test_score_never_overwrites_the_reward(guerdon, rows, tmp_path):
    rows(["1"])
    before = (tmp_path / "reward.py").read_bytes()
    done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:reward", "-o", "reward.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert (tmp_path / "reward.py").read_bytes() == before


# ctrl-C


@pytest.fixture
def listening(tmp_path):
    """Two pipes: one signals that the reward waits, the other lets it continue."""
    names = [str(tmp_path / name) for name in ("ready", "go")]
    for name in names:
        os.mkfifo(name)
    with contextlib.ExitStack() as stack:
        pipes = [os.open(name, os.O_RDWR) for name in names]
        for pipe in pipes:
            stack.callback(os.close, pipe)
        yield ":".join(names), *pipes


def wait_for(pipe):
    assert select.select([pipe], [], [], PATIENCE)[0], "nothing happened"
    assert os.read(pipe, 1) == b"x"


def without_stops(guerdon, *args):
    done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:stops", *args)
    assert done.returncode == 0, done.stderr


def test_score_after_ctrl_c_keeps_finished_rows_and_resumes(
    started, guerdon, rows, tmp_path, listening
):
    names, ready, _ = listening
    rows(["stop" if i == 700 else "x" for i in range(1000)])
    process = started(
        "score", "rollouts.jsonl", "-r", "reward.py:stops", "-o", "scored.jsonl", listens=names
    )
    wait_for(ready)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors == b""
    assert b"interrupted" in out
    scored = tmp_path / "scored.jsonl"
    assert ids(scored.read_bytes()) == list(range(700))
    without_stops(guerdon, "-o", "scored.jsonl", "--resume")
    without_stops(guerdon, "-o", "whole.jsonl")
    assert scored.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_score_after_ctrl_c_keeps_no_group_in_part_and_resumes(
    started, guerdon, tmp_path, listening
):
    names, ready, _ = listening
    lines = [
        json.dumps({"id": i, "group": i // 10, "messages": [
            {"role": "assistant", "content": "stop" if i == 75 else "x"}]})
        for i in range(100)
    ]  # fmt: skip
    (tmp_path / "rollouts.jsonl").write_text("\n".join(lines))
    credit = ("--credit", "gigpo")
    process = started(
        "score", "rollouts.jsonl", "-r", "reward.py:stops", "-o", "scored.jsonl", *credit,
        listens=names,
    )  # fmt: skip
    wait_for(ready)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, b"")
    scored = tmp_path / "scored.jsonl"
    assert ids(scored.read_bytes()) == list(range(70))
    without_stops(guerdon, "-o", "scored.jsonl", "--resume", *credit)
    without_stops(guerdon, "-o", "whole.jsonl", *credit)
    assert scored.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("whom", ["parent", "group"])
def test_score_after_ctrl_c_workers_finish_running_chunks_and_resume(
    started, guerdon, rows, tmp_path, listening, whom
):
    names, ready, go = listening
    rows(["stop" if i == 300 else "x" for i in range(4000)])
    process = started(
        "score", "rollouts.jsonl", "-r", "reward.py:stops", "-o", "scored.jsonl", "-w", "2",
        listens=names, start_new_session=True,
    )  # fmt: skip
    wait_for(ready)
    (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
    os.write(go, b"x")
    out, errors = process.communicate(timeout=PATIENCE)
    assert errors == b""
    assert process.returncode == 130
    assert b"interrupted" in out
    scored = tmp_path / "scored.jsonl"
    kept = ids(scored.read_bytes())
    assert kept == list(range(len(kept)))
    assert len(kept) < 4000
    without_stops(guerdon, "-o", "scored.jsonl", "--resume", "-w", "2")
    assert ids(scored.read_bytes()) == list(range(4000))


def test_score_after_ctrl_c_with_a_slow_reader_writes_no_row_twice(started, rows):
    rows(["1"] * 5000)
    process = started("score", "rollouts.jsonl", "-r", "reward.py:reward", "-o", "-")
    # The pipe is full: the command waits in the middle of writing.
    waiting, size = array.array("i", [0]), fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ)
    poller = select.poll()
    poller.register(process.stderr)
    pages = 8 * 4096  # of which short writes may fill a part only
    while waiting[0] < size - pages:
        assert process.poll() is None
        fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)
        poller.poll(10)  # milliseconds; it stays empty
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    kept = ids(out)
    assert kept == list(range(len(kept)))


# Size


def test_score_streams_many_rows_in_bounded_memory(guerdon, rows, tmp_path):
    (tmp_path / "memory.py").write_text(
        "import pathlib\n"
        "def reward(action, observation):\n"
        "    if action.content == 'last':\n"
        "        status = pathlib.Path('/proc/self/status').read_text()\n"
        "        pathlib.Path('peak').write_text(status.split('VmHWM:')[1].split()[0])\n"
        "    return 1.0\n"
    )

    def peak(count):
        """The most memory that the command took, in MB."""
        rows([*["1"] * (count - 1), "last"], filler="x" * 500)
        done = guerdon("score", "rollouts.jsonl", "-r", "memory.py:reward", "-o", "scored.jsonl")
        assert done.returncode == 0
        with open(tmp_path / "scored.jsonl", "rb") as file:
            assert sum(1 for _ in file) == count
        return int((tmp_path / "peak").read_text()) / 1024

    few, many = peak(2_000), peak(50_000)  # 30 MB of rollouts, 10 MB of results
    assert many - few < 8


# Reward functions, groups and credit


FUNCTIONS = """
    from guerdon import EvaluateResult, StepOutput, reward_function

    @reward_function
    def best(rollouts_messages, **kwargs):
        lengths = [len(messages[-1].text) for messages in rollouts_messages]
        return [float(each == max(lengths)) for each in lengths]

    @reward_function
    async def length(messages, ground_truth=None, *, scale=1.0, **kwargs):
        if messages[-1].text == "fail":
            raise ValueError("no luck")
        value = len(messages[-1].text) * float(scale)
        reason = repr(dict(sorted(kwargs.items())))
        steps = [StepOutput(step_index=0, base_reward=value)]
        return EvaluateResult(score=value, reason=reason, step_outputs=steps,
                              metrics={"[bold]n": 1, "\\udfff": 2})

    @reward_function
    def plain(messages, level=3):
        return float(level)

    def key(step):
        return step.system_step_index

    def raises(step):
        raise LookupError("no such room")

    def unequal(step):
        return object()

    CONSTANT = 3

    def weighted():
        from guerdon import WeightedSum
        words = {"hi": 1.0, "no": 0.5, "fail": 0.0, "hello": 0.0}
        return WeightedSum([lambda action, observation: words[action.content],
                            lambda action, observation: float(action.turn)], [2.0, 1.0])
"""


@pytest.fixture
def functions(tmp_path):
    (tmp_path / "functions.py").write_text(textwrap.dedent(FUNCTIONS))


@pytest.fixture
def inside(tmp_path, functions):
    """The command in this process, with functions to score with."""
    return lambda *args: run_inside(tmp_path, "score", *args)


@pytest.fixture
def grouped(tmp_path):
    """Writes rollouts of these groups and turns."""

    def grouped(*pairs, **columns):
        lines = [
            json.dumps({"id": i, "group": group, "messages": [
                {"role": "user", "content": "?"}, {"role": "assistant", "content": turn}],
                **columns})
            for i, (group, turn) in enumerate(pairs)
        ]  # fmt: skip
        (tmp_path / "rollouts.jsonl").write_text("\n".join(lines) + "\n")

    return grouped


def scored_rows(tmp_path):
    return [json.loads(line) for line in (tmp_path / "scored.jsonl").read_bytes().splitlines()]


OUT = ("-o", "scored.jsonl")


def test_score_lists_groups_of_batch_functions(inside, grouped, tmp_path):
    grouped(("[bold]", "1"), ("[bold]", "22"), ("h", "1"))
    done = inside("rollouts.jsonl", "-r", "functions.py:best", *OUT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["score"] for row in scored_rows(tmp_path)] == [0.0, 1.0, 1.0]
    table = " ".join(done.stdout.split())
    for expected in ("[bold] 2 0.500 0 1", "h 1 1.000 1 one valid score", "groups 2"):
        assert expected in table


def test_score_with_trees_writes_the_score_of_every_rubric(inside, rows, tmp_path):
    rows(["1", "0"])
    done = inside("rollouts.jsonl", "-r", "reward.py:reward", "--trees", *OUT)
    assert (done.returncode, done.stderr) == (0, "")
    trees = [row["trees"] for row in scored_rows(tmp_path)]
    assert [tree["value"] for [tree] in trees] == [1.0, 0.0]
    assert [tree["status"] for [tree] in trees] == ["scored", "scored"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-r", "reward.py:reward"), "--trees requires a file for the rows: --out FILE"),
        (("-r", "functions.py:best", *OUT), "--trees requires a rubric that runs without a"),
        (("-r", "reward.py:reward", "--sandbox", "process", *OUT), "--trees requires a rubric"),
    ],
)
def test_score_refuses_trees_that_nothing_would_have(inside, grouped, rows, options, expected):
    grouped(("g", "1"))
    done = inside("rollouts.jsonl", *options, "--trees")
    assert done.returncode == 2
    assert expected in " ".join(done.stderr.split())


def test_score_credit_gdpo_takes_the_weights_of_a_rubric(inside, tmp_path):
    lines = [
        json.dumps({"id": i, "group": "g", "messages": [
            {"role": "assistant", "content": text} for text in turns]})
        for i, turns in enumerate([["hi", "no"], ["hello"], ["no", "hi", "fail"]])
    ]  # fmt: skip
    (tmp_path / "rollouts.jsonl").write_text("\n".join(lines) + "\n")
    credit = ("--credit", "gdpo", "--credit-option", "normalize_batch=false")
    done = inside("rollouts.jsonl", "-r", "functions.py:weighted", *credit, *OUT)
    assert (done.returncode, done.stderr) == (0, "")
    rows = scored_rows(tmp_path)
    # Sums over the turns: words 1.5, 0, 1.5, with the weight 2; turns 1, 0, 3, with the weight 1.
    assert [row["components"] for row in rows] == [
        {"rubric_0": 1.5, "rubric_1": 1.0},
        {"rubric_0": 0.0, "rubric_1": 0.0},
        {"rubric_0": 1.5, "rubric_1": 3.0},
    ]
    assert [row["score"] for row in rows] == [4.0, 0.0, 6.0]
    # words: mean 1, σ √(3/4); turns: mean 4/3, σ √(7/3)
    words, turns = [0.5773496, -1.1546992, 0.5773496], [-0.2182177, -0.8728708, 1.0910885]
    for row, word, turn in zip(rows, words, turns, strict=True):
        for step in row["steps"]:
            assert step["advantage"] == pytest.approx(2 * word + turn, abs=1e-5)


def test_score_rejects_a_split_group_before_writing(inside, grouped, tmp_path):
    grouped(("g", "1"), ("h", "22"), ("g", "1"))
    (tmp_path / "scored.jsonl").write_bytes(b"precious\n")
    done = inside("rollouts.jsonl", "-r", "functions.py:best", *OUT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('error: line 3: group "g" is split: it ends at line 1')
    assert (tmp_path / "scored.jsonl").read_bytes() == b"precious\n"


def test_score_keeps_the_rows_before_a_split_group_of_a_stream(
    guerdon, grouped, functions, tmp_path
):
    grouped(("g", "1"), ("h", "22"), ("g", "1"))
    data = (tmp_path / "rollouts.jsonl").read_bytes()
    done = guerdon("score", "-", "-r", "functions.py:best", "-o", "-", input=data)
    assert done.returncode == 2
    assert ids(done.stdout.encode()) == [0, 1]
    assert 'group "g" is split' in done.stderr


# Parameters


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("k=v", "v"), ("k=1", 1), ("k=1.5", 1.5), ('k="1"', "1"), ("k=[1, {}]", [1, {}]),
        ("k=null", None), ("k=true", True), ("k=True", "True"), ("k=", ""), ("k=a=b", "a=b"),
        ("k=é", "é"), ("k= x", " x"), ("k={broken", "{broken"),
    ],
)  # fmt: skip
def test_score_param_is_json_or_text(inside, grouped, tmp_path, given, reason):
    grouped(("g", "1"))
    done = inside("rollouts.jsonl", "-r", "functions.py:length", *OUT, "--param", given)
    assert (done.returncode, done.stderr) == (0, "")
    [row] = scored_rows(tmp_path)
    assert row["reason"] == repr({"group": "g", "id": 0, "k": reason})


def test_score_param_nested_too_deeply_is_text(inside, grouped, tmp_path):
    grouped(("g", "1"))
    done = inside("rollouts.jsonl", "-r", "functions.py:plain", *OUT, "-p", "level=" + "[" * 10**5)
    assert done.returncode == 1
    assert scored_rows(tmp_path)[0]["error"].startswith("ValueError: could not convert")


def test_score_param_is_repeatable(inside, grouped, tmp_path):
    grouped(("g", "22"))
    done = inside("rollouts.jsonl", "-r", "functions.py:length", *OUT, "-p", "scale=2", "-p", "a=b")
    assert done.returncode == 0
    [row] = scored_rows(tmp_path)
    assert (row["score"], "'a': 'b'" in row["reason"]) == (4.0, True)


def test_score_param_overrides_a_column(inside, grouped, tmp_path):
    grouped(("g", "1"), level=7)
    for args, score in (((), 7.0), (("-p", "level=8"), 8.0)):
        assert inside("rollouts.jsonl", "-r", "functions.py:plain", *OUT, *args).returncode == 0
        assert scored_rows(tmp_path)[0]["score"] == score


@pytest.mark.parametrize(
    ("reward", "args", "message"),
    [
        ("functions.py:length", ["-p", "k"], "--param must be NAME=VALUE, got 'k'"),
        ("functions.py:length", ["-p", "=v"], "--param must be NAME=VALUE, got '=v'"),
        ("functions.py:length", ["-p", "a b=v"], "--param must be NAME=VALUE, got 'a b=v'"),
        ("functions.py:length", ["-p", "k=1", "-p", "k=1"], "--param k is given twice"),
        ("functions.py:length", ["-p", "messages=[]"], "has no parameter 'messages'"),
        (
            "functions.py:plain",
            ["-p", "levle=1"],
            "plain has no parameter 'levle'; it accepts level",
        ),
        ("reward.py:reward", ["-p", "k=1"], "a rubric has no parameters, got ['k']"),
        ("functions.py:plain", ["--format", "csv"], "or 'atif', got 'csv'"),
        ("functions.py:plain", ["--credit", "ppo"], "there is no estimator 'ppo'; known:"),
        ("functions.py:plain", ["--credit", "gae"], "gae"),
        ("functions.py:plain", ["--credit", "reinforce_pp"], "compares with the whole batch"),
        ("functions.py:plain", ["--credit", "gdpo"], "gdpo requires the option 'weights'"),
        ("functions.py:weighted", ["--credit", "gdpo"], "use normalize_batch=false here"),
        (
            "functions.py:plain",
            ["--credit", "gigpo", "--gamma", "2"],
            "`gamma` must be in [0, 1], got 2",
        ),
        ("functions.py:plain", ["--credit", "gigpo", "--gamma", "nan"], "gamma"),
        ("functions.py:plain", ["--credit", "grpo", "--omega", "1"], "grpo has no option 'omega'"),
        ("functions.py:plain", ["--credit", "grpo", "--credit-option", "x=1"], "no option 'x'"),
        (
            "functions.py:plain",
            ["--credit", "grpo", "--credit-option", "x"],
            "must be NAME=VALUE",
        ),
        ("functions.py:plain", ["--credit", "grpo", "--credit-option", "group=g"], "group"),
        ("functions.py:plain", ["--credit", "grpo", "--credit-option", "method=g"], "method"),
        (
            "functions.py:plain",
            ["--credit", "gigpo", "--gamma", "1", "--credit-option", "gamma=1"],
            "--credit-option gamma is given twice",
        ),
        ("functions.py:plain", ["--gamma", "1"], "gamma: these options require --credit"),
        (
            "functions.py:plain",
            ["--state-key", "history"],
            "state-key: these options",
        ),
        (
            "functions.py:plain",
            ["--credit-option", "normalize=mean"],
            "these options require",
        ),
        (
            "functions.py:plain",
            ["--credit", "gigpo", "--state-key", "first"],
            "`state_key` must be 'last', 'last-K'",
        ),
        (
            "functions.py:plain",
            ["--credit", "gigpo", "--state-key", "functions.py:absent"],
            "absent",
        ),
        (
            "functions.py:plain",
            ["--credit", "gigpo", "--state-key", "functions.py:CONSTANT"],
            "key",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value)[:60],
)
def test_score_exits_with_2_on_invalid_options_and_keeps_the_output(
    inside, grouped, tmp_path, reward, args, message
):
    grouped(("g", "1"))
    (tmp_path / "scored.jsonl").write_bytes(b"precious\n")
    done = inside("rollouts.jsonl", "-r", reward, *OUT, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "scored.jsonl").read_bytes() == b"precious\n"


# Credit


@pytest.mark.parametrize("reward", ["functions.py:length", "functions.py:best", "reward.py:reward"])
@pytest.mark.parametrize("method", ["gigpo", "hgpo", "grpo", "dr_grpo", "rloo", "mt_grpo",
                                    "group_normalized_returns"])  # fmt: skip
def test_score_credit_gives_every_step_an_advantage(inside, grouped, tmp_path, reward, method):
    grouped(("g", "1"), ("g", "0.5"), ("h", "1"))
    done = inside("rollouts.jsonl", "-r", reward, *OUT, "--credit", method)
    assert (done.returncode, done.stderr) == (0, "")
    rows = scored_rows(tmp_path)
    assert all(type(step["advantage"]) is float for row in rows for step in row["steps"])
    assert rows[2]["steps"][0]["advantage"] == 0.0
    assert f"credit: {method}" in " ".join(done.stdout.split())


def test_score_credit_without_grounds_exits_with_1_and_a_note(inside, grouped, tmp_path):
    grouped(("g", "1"), ("g", "22"))
    args = ("rollouts.jsonl", *OUT, "--credit", "pure", "-r")
    assert inside(*args, "functions.py:length").returncode == 0
    done = inside(*args, "functions.py:best")
    assert done.returncode == 1
    rows = scored_rows(tmp_path)
    assert [row["score"] for row in rows] == [0.0, 1.0]
    assert all("no credit: CreditError: no process reward" in row["notes"][-1] for row in rows)


def test_score_credit_option_reaches_the_method(inside, grouped, tmp_path):
    grouped(("g", "1"), ("g", "22"))
    args = ("rollouts.jsonl", "-r", "functions.py:length", *OUT, "--credit", "gigpo")
    for options, found in (
        (("--omega", "0", "--credit-option", "normalize=mean"), [-0.5, 0.5]),
        (("--omega", "2", "--credit-option", "normalize=mean"), [-1.5, 1.5]),
    ):
        assert inside(*args, *options).returncode == 0
        assert [row["steps"][0]["advantage"] for row in scored_rows(tmp_path)] == found


def test_score_state_key_accepts_a_function_of_a_file(inside, grouped, tmp_path):
    grouped(("g", "1"), ("g", "22"))
    done = inside(
        "rollouts.jsonl", "-r", "functions.py:length", *OUT, "--credit", "gigpo",
        "--state-key", "functions.py:key",
    )  # fmt: skip
    assert done.returncode == 0
    assert [row["steps"][0]["anchor"] for row in scored_rows(tmp_path)] == [0, 0]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("raises", "no credit: CreditError: the state key raised LookupError: no such room"),
        ("unequal", "no credit: CreditError"),
    ],
)
def test_score_state_key_that_raises_keeps_the_scores_and_exits_with_1(
    inside, grouped, tmp_path, key, message
):
    grouped(("g", "1"), ("g", "22"))
    done = inside(
        "rollouts.jsonl", "-r", "functions.py:length", *OUT, "--credit", "gigpo",
        "--state-key", f"functions.py:{key}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    rows = scored_rows(tmp_path)
    assert [(row["score"], row["is_score_valid"]) for row in rows] == [(1.0, True), (2.0, True)]
    assert all(message in json.dumps(row) for row in rows)
    assert "groups without credit 1" in " ".join(done.stdout.split())


def test_score_credit_failed_rollout_has_no_advantage_and_exits_with_1(inside, grouped, tmp_path):
    grouped(("g", "1"), ("g", "fail"), ("g", "22"))
    done = inside("rollouts.jsonl", "-r", "functions.py:length", *OUT, "--credit", "grpo")
    assert done.returncode == 1
    found = [row["steps"][0]["advantage"] for row in scored_rows(tmp_path)]
    assert (found[0] < 0 < found[2], found[1]) == (True, None)


def test_score_json_summary_has_groups(inside, grouped):
    grouped(*((n, "x" * (n % 2 + m)) for n in range(150) for m in range(2)), kind="k")
    done = inside(
        "rollouts.jsonl", "-r", "functions.py:length", "--json", "--credit", "gigpo",
        "--by", "group",
    )  # fmt: skip
    summary = json.loads(done.stdout)
    assert (summary["groups"]["groups"], len(summary["groups"]["by_group"])) == (150, 100)
    assert (summary["groups"]["steps"], summary["groups"]["anchor_coverage"]) == (300, 1.0)
    assert summary["groups"]["anchor_sizes"] == {"2": 150}
    assert (len(summary["by"]), summary["by"]["(others)"]["rows"]) == (101, 100)


def test_score_summary_without_groups_has_none(inside, grouped):
    grouped(("g", "1"))
    summary = json.loads(inside("rollouts.jsonl", "-r", "functions.py:plain", "--json").stdout)
    assert "groups" not in summary


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["tables", "json"])
def test_score_prints_names_that_no_terminal_can_show(guerdon, functions, tmp_path, as_json):
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "1"}]
    groups = ["\ud800", "[/bold]", "\\", "a\nb", float("inf"), "é\x1b[31m"]
    lines = [json.dumps({"group": group, "messages": messages}) for group in groups]
    text = "\n".join(lines).replace("Infinity", "1e999")
    (tmp_path / "rollouts.jsonl").write_text(text)
    done = guerdon(
        "score", "rollouts.jsonl", "-r", "functions.py:length", "--credit", "grpo", *as_json,
        "--by", "group",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    if as_json:

        def refuse(name):
            raise AssertionError(f"{name} is not valid JSON")

        summary = json.loads(done.stdout, parse_constant=refuse)
        assert summary["groups"]["groups"] == len(summary["by"]) == 6
    else:
        assert "groups 6" in " ".join(done.stdout.split())


# Episodes that failed, and what a file may do to a terminal


def failed_episode(**columns):
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "1"}]
    return {"id": 1, "messages": messages, "ended": "error", "error": "the game is down", **columns}


def write(tmp_path, *rows):
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_score_failed_episode_exits_with_1_and_has_an_error(inside, tmp_path):
    write(tmp_path, failed_episode(), failed_episode(id=2, ended="done", error=None))
    done = inside("rollouts.jsonl", "-r", "functions.py:length", *OUT)
    assert (done.returncode, done.stderr) == (1, "")
    failed, scored = scored_rows(tmp_path)
    assert (failed["score"], failed["is_score_valid"], scored["score"]) == (None, False, 1.0)
    assert "the episode ended with an error: the game is down" in failed["error"]
    table = " ".join(done.stdout.split())
    assert "failed 1" in table
    assert "the episode ended with an error: the game is down" in table


def test_score_failed_option_scores_failed_episodes(inside, tmp_path):
    write(tmp_path, failed_episode())
    done = inside("rollouts.jsonl", "-r", "functions.py:length", "--score-failed", *OUT)
    assert (done.returncode, done.stderr) == (0, "")
    [scored] = scored_rows(tmp_path)
    assert (scored["score"], scored["error"]) == (1.0, None)


@pytest.mark.parametrize("asked", [[], ["--score-failed"]], ids=["no", "yes"])
def test_score_resumes_failed_episodes(inside, tmp_path, asked):
    write(tmp_path, failed_episode(), failed_episode(id=2))
    arguments = ("rollouts.jsonl", "-r", "functions.py:length", *asked, *OUT)
    first = inside(*arguments)
    again = inside(*arguments, "--resume")
    assert again.returncode == first.returncode == (0 if asked else 1)
    assert "2 were there already" in again.stdout


def test_score_prints_the_first_failure_of_each_kind(inside, grouped):
    grouped(("g", "fail"), ("g", "1"), ("g", "fail"))
    done = inside("rollouts.jsonl", "-r", "functions.py:length")
    assert done.returncode == 1
    assert "ValueError 2 ValueError: no luck" in " ".join(done.stdout.split())
    summary = json.loads(inside("rollouts.jsonl", "-r", "functions.py:length", "--json").stdout)
    assert summary["failures"] == {"ValueError": 2}
    assert summary["first_failures"]["ValueError"].startswith("ValueError: no luck")


STEERS = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202e"
STEERING = """
    from guerdon import EvaluateResult, reward_function

    @reward_function
    def reward(messages):
        if messages[-1].text.startswith("fail"):
            raise ValueError(messages[-1].text)
        return EvaluateResult(score=1.0, metrics={messages[-1].text: 1.0})
"""


@pytest.mark.parametrize("more", [[], ["--credit", "grpo"]], ids=["alone", "credit"])
def test_score_escapes_control_characters_of_files(inside, tmp_path, more):
    (tmp_path / "steering.py").write_text(textwrap.dedent(STEERING))
    rows = [
        failed_episode(id=f"i{STEERS}", group=f"g{STEERS}", kind=f"k{STEERS}", ended=ended,
                       error=f"e{STEERS}", messages=[{"role": "assistant", "content": text}])
        for text, ended in ((f"n{STEERS}", "done"), (f"fail{STEERS}", "done"), ("", "error"))
    ]  # fmt: skip
    write(tmp_path, *rows)
    arguments = ("rollouts.jsonl", "-r", "steering.py:reward", "--by", "kind", *more)
    done = inside(*arguments)
    assert done.returncode == 1
    assert all(each.isprintable() or each == "\n" for each in done.stdout + done.stderr)
    printed = "".join(done.stdout.split())
    escaped = r"\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202e"
    for expected in (f"k{escaped}", f"n{escaped}", f"fail{escaped}", f"e{escaped}"):
        assert expected in printed
    assert (f"g{escaped}" in printed) is bool(more)


def test_score_escapes_control_characters_of_options(inside, tmp_path):
    column = "kind\x1b[2J"
    rows = [failed_episode(id=i, ended="done", **{column: str(i)}) for i in range(10)]
    write(tmp_path, *rows)
    done = inside(
        "rollouts.jsonl", "-r", "functions.py:plain", "--by", column, "-o", "out\x1b[2J.jsonl"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert r"more values of kind\x1b[2J" in done.stdout
    assert r"written to out\x1b[2J.jsonl" in done.stdout


def test_score_escapes_control_characters_of_errors(inside, tmp_path):
    rows = [failed_episode(id=i, group=group) for i, group in enumerate([STEERS, "b", STEERS])]
    write(tmp_path, *rows)
    done = inside("rollouts.jsonl", "-r", "functions.py:best")
    assert done.returncode == 2
    assert "is split" in done.stderr
    assert all(each.isprintable() or each == "\n" for each in done.stderr)


# Recordings of tau-bench


def test_score_reads_tau_bench_by_task(inside, tmp_path):
    records = [
        {"task_id": task, "trial": trial, "reward": 1.0, "info": {"task": {"actions": []}},
         "traj": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "x" * trial}]}
        for trial in (1, 2) for task in (7, 8)
    ]  # fmt: skip
    (tmp_path / "tau.json").write_text(json.dumps(records))
    done = inside("tau.json", "--format", "tau-bench", "-r", "functions.py:best", *OUT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [(row["id"], row["score"]) for row in scored_rows(tmp_path)] == [
        ("7-1", 0.0), ("7-2", 1.0), ("8-1", 0.0), ("8-2", 1.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "tau.json has no rollouts: it is empty"),
        ("{}", "an array of records, got dict"),
        ('{"a": 1}\n{"a": 2}\n', "the file is not valid JSON"),
        ("", "the file is not valid JSON"),
    ],
    ids=["empty array", "object", "lines", "empty"],
)
def test_score_exits_with_2_on_an_invalid_tau_bench_file(inside, tmp_path, text, message):
    (tmp_path / "tau.json").write_text(text)
    done = inside("tau.json", "--format", "tau-bench", "-r", "functions.py:best")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


# Documents of other libraries


def test_score_reads_atif_and_reports_an_invalid_document(inside, tmp_path):
    steps = [{"step_id": 1, "source": "user", "message": "?"},
             {"step_id": 2, "source": "agent", "message": "xx"}]  # fmt: skip
    document = {"trajectory_id": "t", "agent": {"name": "a", "version": "1"}, "steps": steps}
    lines = [document, document | {"steps": [steps[0], steps[0]]}]
    (tmp_path / "atif.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = inside("atif.jsonl", "--format", "atif", "-r", "functions.py:best", *OUT)
    assert done.returncode == 1
    assert [(row["id"], row["is_score_valid"]) for row in scored_rows(tmp_path)] == [
        ("t", True), ("t", False),
    ]  # fmt: skip
    assert "step_id 2: steps are numbered from 1, got 1" in scored_rows(tmp_path)[1]["error"]


def test_score_reads_openenv_traces(inside, tmp_path):
    entry = {
        "request": {"messages": [{"role": "user", "content": "?"}]},
        "response": {"choices": [{"message": {"role": "assistant", "content": "xx"}}]},
    }
    (tmp_path / "trace.json").write_text(json.dumps([entry], indent=1))
    done = inside("trace.json", "--format", "openenv-trace", "-r", "functions.py:best", *OUT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["id"] for row in scored_rows(tmp_path)] == [1]


def test_score_writes_sets_alike_in_every_process(guerdon, environ, grouped, tmp_path):
    (tmp_path / "sets.py").write_text(
        "def reward(messages):\n"
        "    output = {'step_index': 0, 'base_reward': 1.0, 'metrics': {'a': set('abcdef')}}\n"
        "    return {'score': 1.0, 'step_outputs': [output]}\n"
    )
    grouped(("g", "1"))
    outs = []
    for seed in "123":
        environ["PYTHONHASHSEED"] = seed
        done = guerdon("score", "rollouts.jsonl", "-r", "sets.py:reward", "-o", "-")
        assert done.returncode == 0
        outs.append(done.stdout)
    assert outs[0] == outs[1] == outs[2]


OF_TRL = """
def correct(completions, answer, **kwargs):
    pairs = zip(completions, answer)
    return [1.0 if text == f"A: {a}" else 1 / (a != "7") - 1 for text, a in pairs]
"""


def test_score_reads_a_function_and_data_of_trl(guerdon, tmp_path):
    (tmp_path / "rewards.py").write_text(OF_TRL)
    rows = [
        {"prompt": f"{i}?", "completion": f"A: {i // 8 * 8}", "answer": str(i)} for i in range(9)
    ]
    (tmp_path / "rollouts.json").write_text(json.dumps(rows, indent=1))
    refused = guerdon("score", "rollouts.json", "--reward", "rewards.py:correct")
    assert refused.returncode == 2
    assert "score with --reward trl:rewards.py:correct" in " ".join(refused.stderr.split())
    for option in ([], ["--workers", "2"], ["--sandbox", "process"]):
        done = guerdon(
            "score", "rollouts.json", "--reward", "trl:rewards.py:correct", *option, "--json"
        )
        report = json.loads(done.stdout)
        assert (done.returncode, report["rows"], report["failed"]) == (1, 9, 1)
        assert report["mean_score"] == 0.25
    checked = guerdon(
        "score", "rollouts.json", "--reward", "guerdon:ExactMatch", "--ground-truth", "completion",
        "--json",
    )  # fmt: skip
    assert json.loads(checked.stdout)["mean_score"] == 1.0
