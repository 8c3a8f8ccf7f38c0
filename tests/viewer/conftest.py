"""Files of rows, a small page in place of the real one, and the real one in Chromium."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.gsm8k import rollouts as gsm8k
from examples.tau_airline.data import data_path
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.scoring.reading import FORMATS
from guerdon.tracking import RewardLogger
from guerdon.viewer import FileIndex, ViewedFile
from tests.viewer import page as pages
from tests.viewer.page import REPOSITORY, read_lines, run_guerdon, write_lines


@pytest.fixture
def write(tmp_path):
    """Writes values as lines of JSON; gives the path."""

    def write(name, values, end="\n"):
        path = tmp_path / name
        path.write_text("\n".join(map(json.dumps, values)) + end)
        return path

    return write


@pytest.fixture
def opened(tmp_path):
    """Opens indexes, and closes them."""
    indexes = []

    def opened(path):
        index = FileIndex(path, cache=tmp_path / "cache")
        indexes.append(index)
        return index

    yield opened
    for index in indexes:
        index.close()


@pytest.fixture
def viewed(opened):
    """Opens a file of the page, with its rollouts."""

    def viewed(path, rollouts=None):
        return ViewedFile(opened(path), None if rollouts is None else opened(rollouts))

    return viewed


def row(id, score, **more):
    """A result row; a score of None is a failure."""
    return {
        "id": id,
        "group": "g",
        "score": score,
        "is_score_valid": score is not None,
        "components": {} if score is None else {"right": score},
        "step_rewards": None if score is None else [score],
        "error": "JudgeError: no answer" if score is None else None,
        "fingerprint": "f",
    } | more


def rollout(id, text="Hello", **more):
    """A rollout with an answer."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]
    return {"id": id, "group": "g", "messages": messages} | more


PAGE = {
    "index.html": """<!doctype html>
<html><head>
<meta charset="utf-8">
<link rel="stylesheet" href="style.css">
<script type="module" src="main.js"></script>
</head><body>
</body></html>
""",
    "style.css": "body { color: black; }\n",
    "names.js": 'export const name = "guerdon";\n',
    "main.js": 'import { name } from "./names.js";\nexport function title() { return name; }\n',
}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The folder of a small page, which reports contain."""
    folder = tmp_path / "page"
    folder.mkdir()
    for name, text in PAGE.items():
        (folder / name).write_text(text)
    monkeypatch.setattr("guerdon.viewer.report.PAGES", folder)
    return folder


# The page in Chromium ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    """The browser of all tests of a file.

    It is closed before the tests of other files: playwright runs an event loop while it is open.
    """
    with pages.browser() as opened:
        yield opened


@pytest.fixture
def serve(tmp_path):
    """Serves files, which may be given as lists of rows; gives the address of the page."""
    with ExitStack() as stack:

        def serve(*files, rollouts=None):
            paths = [
                each if isinstance(each, Path) else write_lines(tmp_path / f"{place}.jsonl", each)
                for place, each in enumerate(files)
            ]
            joined = None
            if rollouts is not None:
                joined = write_lines(tmp_path / "rollouts.jsonl", rollouts)
            return stack.enter_context(pages.viewed(paths, joined))

        yield serve


@pytest.fixture
def show(chromium, serve):
    """Opens pages at an address and a hash, and closes them before what `serve` has opened.

    None may report an error.
    """
    with ExitStack() as stack:

        def show(address, hash="", **options):
            return stack.enter_context(pages.opened(chromium, address + hash, **options))

        yield show


# Files that the command has written ---------------------------------------------------------------

REWARD = '''
from guerdon import Gate, LengthBounds, NumericAnswer, Rubric, Sequential, WeightedSum

class Judge(Rubric):
    """Half of the words are enough; the judge doesn't answer if there are none."""
    def forward(self, action, observation):
        if "half" in action.content:
            raise ConnectionError("the judge is down")
        return max(0.0, 1 - len(action.content) / 400)

brief = WeightedSum([NumericAnswer(), Judge()], weights=[0.4, 0.6])
gated = Sequential(Gate(LengthBounds(maximum=60, unit="words")), brief)
'''


@dataclass(frozen=True)
class Scored:
    """A file that the command has written, and what it has printed with ``--json``."""

    path: Path
    printed: dict[str, Any]

    @property
    def rows(self):
        return read_lines(self.path)


@dataclass(frozen=True)
class Recorded:
    """Recordings that were published, scored by the command, and their page."""

    address: str
    files: dict[str, Scored]

    def file(self, name):
        """The number of a file on the page."""
        return list(self.files).index(name)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """τ-bench's airline with GiGPO, and the GSM8K solutions of four models with several rewards."""
    try:
        trajectories = data_path() / "trajectories.json"
    except InvalidArgumentError as error:
        pytest.skip(str(error))
    if gsm8k.solutions() == gsm8k.HERE / "sample.jsonl":
        pytest.skip("the GSM8K model solutions are missing: set GUERDON_DATA to their folder")
    folder = tmp_path_factory.mktemp("recorded")
    with trajectories.open("rb") as file:
        airline = [json.loads(line) for _, line in FORMATS["tau-bench"](file)]
    solved = list(gsm8k.rollouts(gsm8k.solutions()))
    write_lines(folder / "airline.jsonl", airline)
    write_lines(folder / "solved.jsonl", solved)
    write_lines(folder / "rollouts.jsonl", [*airline, *solved])
    (folder / "reward.py").write_text(REWARD)
    solution = str(REPOSITORY / "examples/gsm8k/reward.py")

    def printed(name, *arguments):
        out = folder / f"{name}.jsonl"
        text = run_guerdon(folder, *arguments, "--out", str(out), "--json")
        return Scored(out, json.loads(text))

    files = {
        "tau": printed("tau", "score", "airline.jsonl", "--credit", "gigpo", "--gamma", "0.95",
                       "--reward", str(REPOSITORY / "examples/tau_airline/reward.yaml")),
        "gsm8k": printed("gsm8k", "score", "solved.jsonl", "--reward", f"{solution}:Solution",
                         "--by", "model", "--trees"),
        "failing": printed("failing", "score", "solved.jsonl", "--reward", "reward.py:gated",
                           "--by", "model", "--credit", "grpo"),
        "diff": printed("diff", "diff", f"{solution}:Solution", "reward.py:brief", "solved.jsonl"),
    }  # fmt: skip
    names = [each.path.name for each in files.values()]
    with pages.guerdon_view(folder, *names, "--rollouts", "rollouts.jsonl") as address:
        yield Recorded(address, files)


@pytest.fixture(scope="session")
def arena(tmp_path_factory):
    """Results of the arena: the address of their page, and the table of the command."""
    folder = tmp_path_factory.mktemp("arena")
    methods = ("--worlds", "lock", "--methods", "gigpo,grpo", "--seeds", "3")
    table = run_guerdon(folder, "arena", *methods, "--out", "arena.jsonl")
    with pages.viewed([folder / "arena.jsonl"]) as address:
        yield address, table


def write_log(folder, name, steps):
    """A log that RewardLogger has written, with a change of a weight at half of the steps."""
    with RewardLogger("jsonl", path=folder, run_name=name) as logger:
        weights = {"right": 1.0, "style": 0.2}
        for step in range(steps):
            if step == steps // 2:
                weights["style"] = 0.4
                logger.log_config_update(
                    "style.weight", step=step, before=0.2, after=0.4, who="anna", when=0.0,
                    fingerprint="f",
                )  # fmt: skip
            components = {"right": step / steps, "style": 0.5}
            reward = sum(weights[each] * components[each] for each in weights)
            logger.log_step(step, 0, reward=reward, components=components, weights=weights)
    return folder / name / "rewards.jsonl"
