import doctest
import gc
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.coding_env import environment as environment_module
from examples.coding_env import shared_sandbox
from examples.coding_env.candidates import candidates
from examples.coding_env.environment import CodingEnvironment
from examples.coding_env.humaneval import complete, problems_path, read_problems
from examples.coding_env.models import CodeAction, CodeObservation
from examples.coding_env.rubrics import Compiles, PassesTests, Style, reward
from examples.coding_env.runner import run_tests
from examples.coding_env.style import faults
from examples.coding_env.tasks import Task, load_tasks
from guerdon import Gate, Limits, WeightedSum, open_sandbox
from guerdon.errors import (
    EpisodeError,
    InvalidArgumentError,
    MissingInputError,
    SandboxError,
    SandboxUnavailableError,
)

pytestmark = pytest.mark.edge  # real processes

TASKS = load_tasks()
ADD = next(task for task in TASKS if task.id == "add")
GOOD = ADD.solution
SHORT = Limits(seconds=0.3)


@pytest.fixture(scope="module")
def sandbox():
    """The strictest sandbox that works on this machine; the programs here are trusted."""
    try:
        opened = open_sandbox("strict", workers=2)
    except SandboxUnavailableError:
        opened = open_sandbox("process", workers=2)
    with opened:
        yield opened


def play(sandbox, task, program, **kwargs):
    """Return the observation after one submission."""
    environment = CodingEnvironment([task], sandbox=sandbox, **kwargs)
    environment.reset(task=0)
    return environment.step(CodeAction(program=program))


def in_two_threads(function, items):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(function, items))


@pytest.mark.parametrize(
    "test",
    [
        "import unittest\nclass T(unittest.TestCase):\n"
        "    def test_answer(self): self.assertEqual(answer(), 4207)",
        "found = answer()\nassert found == 4207, f'{found} instead of 4207'",
        "if answer() != 4207: raise ValueError('not 4207')",
    ],
)
def test_coding_environment_shows_the_agent_no_expected_value(sandbox, test):
    task = Task("answer", "Write answer().", "answer", (test,), "def answer(): return 4207")
    observation = play(sandbox, task, "def answer(): return 0")
    assert (observation.passed, observation.reward) == (0, 0.0)
    assert "test 1 of 1" in observation.feedback
    assert "4207" not in repr(observation.model_dump())
    own = play(sandbox, task, "def answer(): raise KeyError('mine')")
    assert "KeyError: 'mine' (line 1 of the program)" in own.feedback


def observations_json(environment, programs, **reset):
    """Return all observations of an episode as JSON."""
    observations = [environment.reset(**reset)]
    observations += [environment.step(CodeAction(program=program)) for program in programs]
    return [observation.model_dump_json() for observation in observations]


# The tasks ---------------------------------------------------------------------------------------


def test_load_tasks_returns_tasks_of_rising_difficulty():
    assert len(TASKS) >= 32
    assert len({task.id for task in TASKS}) == len(TASKS)
    levels = [task.difficulty for task in TASKS]
    assert levels == sorted(levels)
    assert set(levels) == {1, 2, 3, 4, 5, 6}


def test_load_tasks_prompts_name_the_entry_point_and_hide_the_tests():
    for task in TASKS:
        assert len(task.tests) >= 6, task.id
        assert f"`{task.entry_point}(" in task.prompt, task.id
        assert not any(test in task.prompt for test in task.tests), task.id


@pytest.fixture
def frequent_collections():
    """Collects garbage often, and runs Python code when it does, so that threads take turns."""

    def callback(phase, info):
        sum(range(100))

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(callback)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*before)
    gc.callbacks.remove(callback)


def test_faults_is_called_in_several_threads(frequent_collections):
    programs = TASKS * 5
    found = in_two_threads(lambda task: faults(task.solution, task.entry_point), programs)
    assert found == [faults(task.solution, task.entry_point) for task in programs]


def test_coding_environment_scores_reference_solutions_at_least_0_9(sandbox):
    for observation in in_two_threads(lambda task: play(sandbox, task, task.solution), TASKS):
        assert observation.passed == observation.total > 0, (
            observation.task_id,
            observation.feedback,
        )
        assert observation.reward >= 0.9, (observation.task_id, observation.metadata)
        assert observation.done


def test_coding_environment_scores_wrong_candidates_0(sandbox):
    for observation in in_two_threads(
        lambda task: play(sandbox, task, candidates(task)["wrong"]), TASKS
    ):
        assert observation.passed < observation.total / 2, observation.task_id
        assert observation.reward == 0.0, observation.task_id


def test_coding_environment_scores_half_right_candidates_in_between(sandbox):
    for observation in in_two_threads(
        lambda task: play(sandbox, task, candidates(task)["half"]), TASKS
    ):
        assert observation.total / 2 <= observation.passed < observation.total, (
            observation.task_id,
            observation.feedback,
        )
        assert 0.35 <= observation.reward < 0.95, observation.task_id
        assert not observation.done


@pytest.mark.parametrize("task", TASKS[::5], ids=lambda task: task.id)
def test_coding_environment_scores_broken_and_endless_candidates_0(sandbox, task):
    broken = play(sandbox, task, candidates(task)["broken"])
    assert broken.feedback.startswith("The program does not compile: line ")
    endless = play(sandbox, task, candidates(task)["endless"], limits=SHORT)
    assert "it was not done within 0.3 s" in endless.feedback
    assert (broken.reward, endless.reward) == (0.0, 0.0)


def test_task_rejects_empty_tests():
    with pytest.raises(InvalidArgumentError, match="task 'x' must have at least one test"):
        Task(id="x", prompt="", entry_point="x", tests=(), solution="")


# The reward --------------------------------------------------------------------------------------


def test_reward_gates_a_weighted_sum_of_tests_and_style():
    compiles, passes, quality = reward()
    assert isinstance(compiles, Gate)
    assert isinstance(compiles.rubric, Compiles)
    assert isinstance(passes, Gate)
    assert isinstance(passes.rubric, PassesTests)
    assert passes.threshold == 0.5
    assert isinstance(quality, WeightedSum)
    assert quality.weights == [0.7, 0.3]
    assert [type(rubric) for rubric in quality.children()] == [PassesTests, Style]


def test_reward_stops_at_the_first_closed_gate(sandbox):
    kinds = candidates(ADD)
    names = {
        kind: play(sandbox, ADD, kinds[kind]).metadata["reward_components"]
        for kind in ("broken", "wrong", "half")
    }
    assert "rubric_1" not in names["broken"]
    assert "rubric_2" not in names["wrong"]
    half = names["half"]
    assert half["rubric_2.rubric_0"] == 0.5
    quality = 0.7 * half["rubric_2.rubric_0"] + 0.3 * half["rubric_2.rubric_1"]
    assert half["rubric_2"] == pytest.approx(quality)


def test_reward_score_has_reasons(sandbox):
    action = CodeAction(program=candidates(ADD)["half"])
    environment = CodingEnvironment([ADD], sandbox=sandbox)
    environment.reset()
    observation = environment.step(action)
    score = environment.rubric.score(action, observation)
    reason = score["rubric_2"]["rubric_0"].reason
    assert reason.startswith(
        "3 of 6 tests passed; test 4 of 6: NotImplementedError: out of patience"
    )
    assert score["rubric_2"]["rubric_1"].reason == "no faults"


def test_coding_environment_step_runs_the_tests_once(sandbox, monkeypatch):
    calls = []

    def counting(sandbox, program, task, limits):
        calls.append(program)
        return run_tests(sandbox, program, task, limits)

    monkeypatch.setattr(environment_module, "run_tests", counting)
    assert play(sandbox, ADD, GOOD).reward == 1.0
    assert calls == [GOOD]


class Failing:
    """A sandbox that fails."""

    level = promise = "failing"

    def run_pair(self, program, checker, *, limits=None):
        raise SandboxError("the worker was killed from outside")


def test_step_with_a_failing_sandbox_gives_no_reward():
    observation = play(Failing(), ADD, GOOD)
    assert observation.reward is None
    assert "the worker was killed from outside" in str(observation.metadata["reward_error"])
    assert observation.feedback == "The program could not be run, for a reason outside the program."
    with pytest.raises(SandboxError):
        PassesTests()(CodeAction(program=GOOD), observation)


def test_step_with_an_unavailable_sandbox_level_raises(monkeypatch):
    def unavailable(level):
        raise SandboxUnavailableError(f"{level} doesn't work here", level=level)

    monkeypatch.setattr(shared_sandbox, "open_sandbox", unavailable)
    environment = CodingEnvironment([ADD])
    environment.reset()
    with pytest.raises(SandboxUnavailableError, match="auto doesn't work here"):
        environment.step(CodeAction(program=GOOD))


def test_coding_environments_share_a_sandbox_that_the_last_one_closes(sandbox, monkeypatch):
    opened = []

    def opening(level):
        opened.append(open_sandbox(level))
        return opened[-1]

    monkeypatch.setattr(shared_sandbox, "open_sandbox", opening)
    one, other = (CodingEnvironment([ADD], sandbox=sandbox.level) for _ in range(2))
    for environment in (one, other, one):
        environment.reset()
        assert environment.step(CodeAction(program=GOOD)).reward == 1.0
    assert len(opened) == 1
    one.close()
    one.close()  # closing twice counts once
    assert opened[0].run("").ending == "ok"
    other.close()
    with pytest.raises(SandboxError):
        opened[0].run("")


def test_coding_environment_leaves_a_passed_sandbox_open(sandbox):
    with CodingEnvironment([ADD], sandbox=sandbox) as environment:
        environment.reset()
        environment.step(CodeAction(program=GOOD))
    assert sandbox.run("").ending == "ok"


def test_run_tests_rejects_tests_that_are_not_python(sandbox):
    task = Task(id="x", prompt="", entry_point="x", tests=("assert (",), solution="x = 1")
    with pytest.raises(InvalidArgumentError, match="test 1 of 1 is not valid Python"):
        run_tests(sandbox, "x = 1", task)


def test_reward_rejects_an_observation_without_verdict(sandbox):
    observation = CodeObservation.model_validate_json(play(sandbox, ADD, GOOD).model_dump_json())
    with pytest.raises(MissingInputError, match="no verdict"):
        reward()(CodeAction(program=GOOD), observation)


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        (GOOD, ""),
        ("def add(a, b):\n    return a + b\n", "add has no docstring"),
        (GOOD + "def badName():\n    pass\n", "badName is not in snake_case"),
        (GOOD + "list = 3\n", "list shadows a built-in name"),
        (GOOD + "# " + "x" * 99 + "\n", "line 4 is longer than 100 characters"),
        (GOOD + "x = 1 \n", "line 4 has a tab or trailing spaces"),
        (GOOD + "try:\n    x = 1\nexcept:\n    pass\n", "line 6 catches every exception"),
        (GOOD + "from math import *\n", "line 4 imports everything"),
        ("add = lambda a, b: a + b\n", "add is not defined by def or class"),
        (GOOD + "class low:\n    pass\n", "the class low is not in CamelCase"),
        (GOOD + "def f():\n" + "    x = 1\n" * 50, "f has 51 lines, more than 40"),
        ("-" * 100_000 + "1", "the program can't be parsed"),
    ],
)
def test_faults_names_each_style_fault(sandbox, program, fault):
    assert fault in "; ".join(each for each in faults(program, "add").values() if each)


# Limits ------------------------------------------------------------------------------------------


def verdict(sandbox, program, limits=None):
    return run_tests(sandbox, program, ADD, limits)


@pytest.mark.parametrize(
    ("program", "ended", "failure"),
    [
        ("while True: pass", "timeout", "before the first test: it was not done within 0.3 s"),
        ("import time; time.sleep(99)", "timeout", "before the first test: it was not done"),
        ("def add(a, b):\n    while a: pass\n    return b", "timeout", "test 1 of 6: it was not"),
        ("x = bytearray(10**9)", "memory", "before the first test: "),
        ("while True: print('x' * 999)", "output_limit", "it printed more than 65536 bytes"),
        ("import os; os._exit(3)", "nonzero", "before the first test: its process ended by itself"),
        ("import os; os.abort()", "signal", "ended by itself (signal 6)"),
        ("def add(a, b): raise SystemExit", "ok", "test 1 of 6: SystemExit"),
        ("print('passed 6 of 6')", "ok", "NameError: name 'add' is not defined"),
    ],
)
def test_run_tests_reports_a_programs_failure_in_the_verdict(sandbox, program, ended, failure):
    found = verdict(sandbox, program, SHORT if ended == "timeout" else None)
    assert found.compiled
    assert found.passed == 0
    assert found.ended == ended
    assert failure in found.failure


def test_run_tests_counts_the_tests_passed_before_an_exit(sandbox):
    program = "import os\ndef add(a, b): return a + b if a >= 0 else os._exit(0)"
    found = verdict(sandbox, program)
    assert (found.passed, found.total, found.ended) == (2, 6, "ok")
    assert found.failure == "test 3 of 6: its process ended by itself (exit code 0)"


def test_run_tests_goes_on_after_a_failed_test(sandbox):
    found = verdict(sandbox, "def add(a, b): return 1 / 0 if a == 1 else a + b")
    assert (found.passed, found.ended) == (5, "ok")
    assert (
        found.failure == "test 1 of 6: ZeroDivisionError: division by zero (line 1 of the program)"
    )


def test_run_tests_is_thread_safe(sandbox):
    programs = [GOOD, "def (", "raise OSError", candidates(ADD)["half"]] * 5
    with ThreadPoolExecutor(5) as pool:
        passed = [found.passed for found in pool.map(lambda each: verdict(sandbox, each), programs)]
    assert passed == [6, 0, 0, 3] * 5


# Episodes ----------------------------------------------------------------------------------------


def test_coding_environment_episode_ends_when_solved():
    environment = CodingEnvironment()
    first = environment.reset(task="add", episode_id="mine")
    assert (first.reward, first.done, first.submissions_left) == (None, False, 5)
    assert first.prompt == ADD.prompt
    second = environment.step(CodeAction(program="def (not Python"))
    assert (second.done, second.submissions_left) == (False, 4)
    third = environment.step(CodeAction(program=GOOD))
    assert (third.done, third.reward, third.feedback) == (True, 1.0, "All 6 tests passed.")
    state = environment.state
    assert (state.episode_id, state.step_count, state.solved, state.best) == ("mine", 2, True, 1.0)
    with pytest.raises(EpisodeError, match=r"the episode is solved; call reset\(\)"):
        environment.step(CodeAction(program=GOOD))


def test_coding_environment_episode_ends_after_max_submissions():
    environment = CodingEnvironment()
    environment.reset(task="add")
    observations = [environment.step(CodeAction(program="x = 1")) for _ in range(5)]
    assert [each.done for each in observations] == [False] * 4 + [True]
    assert [each.submissions_left for each in observations] == [4, 3, 2, 1, 0]
    with pytest.raises(EpisodeError, match="has used up its submissions"):
        environment.step(CodeAction(program=GOOD))
    assert not environment.reset(task="add").done
    assert environment.step(CodeAction(program=GOOD)).reward == 1.0


def test_coding_environment_step_before_reset_raises():
    with pytest.raises(EpisodeError, match=r"call reset\(\) before step\(\)"):
        CodingEnvironment().step(CodeAction(program=GOOD))


def test_coding_environment_observations_are_reproducible_and_hide_the_tests(sandbox):
    kinds = candidates(ADD)
    programs = [kinds["broken"], kinds["half"], "add = {'a', 'b'}\nprint(object())", GOOD]
    programs.insert(3, "def add(a, b): raise ValueError(object(), {'a', 'b', 'c'})")
    once, again = (
        observations_json(CodingEnvironment(sandbox=sandbox), programs, task="add")
        for _ in range(2)
    )
    assert once == again
    assert not any(test in text for test in ADD.tests for text in once)
    assert "add(-5" not in "".join(once)


def test_coding_environment_reset_chooses_the_task_by_seed():
    environment = CodingEnvironment()
    chosen = [environment.reset(seed=seed).task_id for seed in range(60)]
    assert chosen == [CodingEnvironment().reset(seed=seed).task_id for seed in range(60)]
    assert len(set(chosen)) > 20
    assert environment.reset(seed=3, task=0).task_id == TASKS[0].id


@pytest.mark.parametrize("task", ["nothing", -1, len(TASKS), True, 1.0, ["add"]])
def test_coding_environment_reset_rejects_an_unknown_task(task):
    with pytest.raises(InvalidArgumentError, match=f"a number from 0 to {len(TASKS) - 1} or an ID"):
        CodingEnvironment().reset(task=task)


def test_coding_environment_rejects_invalid_arguments():
    with pytest.raises(InvalidArgumentError, match="got 2 tasks and 1 IDs"):
        CodingEnvironment([ADD, ADD])
    with pytest.raises(InvalidArgumentError, match="`max_submissions` must be at least 1, got 0"):
        CodingEnvironment(max_submissions=0)
    environment = CodingEnvironment()
    with pytest.raises(InvalidArgumentError, match=r"not \['taks'\]"):
        environment.reset(taks=3)
    with pytest.raises(InvalidArgumentError, match="`seed` must be at least 0, got -1"):
        environment.reset(seed=-1)
    environment.reset(task=0)
    with pytest.raises(InvalidArgumentError, match="`timeout_s` must be greater than 0, got 0"):
        environment.step(CodeAction(program=GOOD), timeout_s=0)
    with pytest.raises(ValueError, match="at most 50000 characters"):
        CodeAction(program="x" * 50_001)


def test_feedback_states_the_first_failure_and_how_the_program_ended(sandbox):
    program = "def add(a, b):\n    while not a: pass\n    return None"
    assert play(sandbox, ADD, program, limits=SHORT).feedback == (
        "0 of 6 tests passed. First failure: test 1 of 6: AssertionError (stopped: out of time)"
    )


def test_coding_environment_step_stops_a_program_after_timeout_s(sandbox):
    environment = CodingEnvironment(sandbox=sandbox)
    environment.reset(task="add")
    observation = environment.step(CodeAction(program="while True: pass"), timeout_s=0.2)
    assert "it was not done within 0.2 s" in observation.feedback


# HumanEval ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problems():
    path = problems_path()
    if path is None:
        pytest.skip("HumanEval's problems are missing: set GUERDON_DATA to their folder")
    return list(read_problems(path))


def test_run_tests_passes_canonical_solutions(sandbox, problems):
    found = in_two_threads(lambda task: run_tests(sandbox, task.solution, task), problems)
    assert [task.id for task, each in zip(problems, found, strict=True) if each.passed < 1] == []
    assert len(found) == 60


def test_run_tests_fails_canonical_solutions_without_their_last_line(sandbox, problems):
    def shortened(task):
        program = "".join(task.solution.rstrip().splitlines(keepends=True)[:-1])
        return run_tests(sandbox, program, task)

    found = in_two_threads(shortened, problems)
    assert [task.id for task, each in zip(problems, found, strict=True) if each.passed] == []


def test_coding_environment_plays_humaneval_problems(sandbox, problems):
    environment = CodingEnvironment(problems, sandbox=sandbox)
    first = environment.reset(task="HumanEval/0")
    assert first.starter in first.prompt
    body = problems[0].solution.removeprefix(first.starter)
    observation = environment.step(CodeAction(program=complete(problems[0], body)))
    assert observation.done
    assert observation.metadata["reward_components"]["rubric_1"] == 1.0
    assert complete(problems[0], problems[0].solution) == problems[0].solution


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"task_id": 1, "prompt": 2}'])
def test_read_problems_names_an_invalid_line(tmp_path, line):
    path = tmp_path / "problems.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=r"problems\.jsonl, line 1 is not a problem"):
        list(read_problems(path))


MODULES = "candidates environment humaneval models rubrics runner style tasks"


@pytest.mark.parametrize("name", MODULES.split())
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"examples.coding_env.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)
