"""from_trl, from_verl, from_verifiers, from_openrlhf: the numbers of a function's own library."""

import asyncio
import copy
import functools
import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest

from guerdon import WeightedSum, as_rubric, integrations, load_reward, score_rollouts
from guerdon.errors import GuerdonError, LoadError, RewardFunctionError
from guerdon.integrations import from_openrlhf, from_trl, from_verifiers, from_verl

TEXTS = [
    {"group": "a", "prompt": "6 × 7? ", "completion": "A: 42", "answer": "42", "level": 1},
    {"group": "a", "prompt": "6 × 8? ", "completion": "A: 42", "answer": "48", "level": 2},
]
CHATS = [
    {
        **{name: row[name] for name in ("group", "answer", "level")},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": row["prompt"]},
            {"role": "assistant", "content": row["completion"]},
        ],
    }
    for row in TEXTS
]


def scores(function, rows, **options):
    return [row["score"] for row in score_rollouts(function, rows, **options)]


def errors(function, rows, **options):
    return [row["error"] for row in score_rollouts(function, rows, **options)]


# TRL


def correct(completions, answer, **kwargs):
    return [float(text == f"A: {a}") for text, a in zip(completions, answer, strict=True)]


async def correct_async(prompts, completions, answer, trainer_state=None, **kwargs):
    await asyncio.sleep(0)
    return correct(completions, answer)


def correct_chat(prompts, completions, answer, log_extra, log_metric):
    log_extra("answer", answer)
    log_metric("rows", len(prompts))
    assert [each["role"] for each in prompts[0]] == ["system", "user"]
    return correct([completion[0]["content"] for completion in completions], answer)


class Correct:
    def __call__(self, completions, answer, **kwargs):
        return correct(completions, answer)

    def method(self, completions, answer):
        return np.array(correct(completions, answer))


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (correct, TEXTS),
        (correct_async, TEXTS),
        (Correct(), TEXTS),
        (Correct().method, TEXTS),
        (functools.partial(correct_async, trainer_state=1), TEXTS),
        (lambda completions, answer: correct(completions, answer), TEXTS),
        (lambda **columns: correct(columns["completions"], columns["answer"]), TEXTS),
        (correct_chat, CHATS),
    ],
)
def test_from_trl_scores_as_trl_does(function, rows):
    assert scores(from_trl(function), rows) == [1.0, 0.0]
    assert scores(from_trl(function), [{**row, "group": None} for row in rows]) == [1.0, 0.0]
    assert scores(from_trl(function, mode="pointwise"), rows) == [1.0, 0.0]


def test_from_trl_calls_the_function_once_for_a_group_with_columns_as_lists():
    calls = []

    def seen(prompts, completions, level, **columns):
        calls.append((prompts, level, sorted(columns)))
        return [0.0] * len(prompts)

    assert scores(from_trl(seen), TEXTS) == [0.0, 0.0]
    assert calls == [(["6 × 7? ", "6 × 8? "], [1, 2], ["answer", "group"])]


def test_from_trl_passes_messages_of_a_prompt_and_a_completion_as_they_are():
    examples = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "1"}]
    prompt = [*examples, {"role": "user", "content": "2?"}]
    completion = [{"role": "assistant", "content": "2"}]

    def same(prompts, completions):
        return [float(prompts == [prompt] and completions == [completion])]

    assert scores(from_trl(same), [{"prompt": prompt, "completion": completion}]) == [1.0]


def test_from_trl_passes_the_turns_after_the_prompt():
    def turns(prompts, completions):
        return [float(len(completion)) for completion in completions]

    chat = [*CHATS[0]["messages"], {"role": "user", "content": "Sure?"}]
    chat.append({"role": "assistant", "content": "Yes"})
    assert scores(from_trl(turns), [{"messages": chat}]) == [3.0]
    assert scores(from_trl(turns), [{"messages": chat, "first_turn": 1}]) == [1.0]


def test_functions_get_a_completion_as_the_model_wrote_it_with_its_reasoning():
    text = "<think>6 × 7</think>\n<answer>42</answer>"
    texts = {"prompt": "6 × 7?", "completion": text, "ground_truth": "42", "answer": "42"}
    chat = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": text}]

    def of_verl(data_source, solution_str, ground_truth):
        return float(solution_str == text)

    def of_openrlhf(queries, prompts, labels):
        return [float(query.endswith(text)) for query in queries]

    for row in texts, {"messages": chat, "ground_truth": "42"}:
        assert scores(from_verl(of_verl), [row]) == [1.0]
        assert scores(from_openrlhf(of_openrlhf), [row]) == [1.0]
    assert scores(from_trl(lambda completions: [float(completions == [text])]), [texts]) == [1.0]
    assert scores(from_verifiers(lambda completion: float(completion == text)), [texts]) == [1.0]


def test_a_null_column_is_no_answer():
    row = {"prompt": "q", "completion": "x", "answer": None, "ground_truth": "5"}
    assert scores(from_verifiers(lambda completion, answer: float(answer == "5")), [row]) == [1.0]
    row = {"prompt": "q", "completion": "x", "label": "5", "ground_truth": None}

    def of_openrlhf(queries, prompts, labels):
        return [float(labels == ["5"])]

    assert scores(from_openrlhf(of_openrlhf), [row]) == [1.0]


def test_columns_of_mappings_may_be_json_and_are_named_if_they_are_not():
    def level(solution_str, ground_truth, extra_info):
        return float(extra_info["level"])

    row = {"prompt": "q", "completion": "x", "ground_truth": "1"}
    assert scores(from_verl(level), [row | {"extra_info": '{"level": 3}'}]) == [3.0]
    for name, value in ("extra_info", "[3]"), ("extra_info", [3]), ("reward_model", "rule"):
        [error] = errors(from_verl(level), [row | {name: value}])
        assert f"the column {name} must be a mapping or its JSON" in error


def test_from_trl_none_and_nan_are_no_score():
    assert scores(from_trl(lambda completions: [None, 1.0]), TEXTS) == [None, 1.0]
    assert scores(from_trl(lambda completions: [float("nan"), 1.0]), TEXTS) == [None, 1.0]


@pytest.mark.parametrize(
    "function",
    [correct, correct_async, lambda prompts, completions, answer: [1.0] * len(prompts)],
)
@pytest.mark.parametrize("group", ["a", None])
def test_from_trl_a_rollout_for_which_it_raises_fails_alone(function, group):
    def raises(prompts, completions, answer):
        if "48" in answer:
            raise ValueError("no answer")
        return function(prompts=prompts, completions=completions, answer=answer)

    async def raises_async(prompts, completions, answer):
        made = raises(prompts, completions, answer)
        return await made if asyncio.iscoroutine(made) else made

    rows = [{**row, "group": group} for row in [*TEXTS, TEXTS[0]]]
    used = raises if function is not correct_async else raises_async
    assert scores(from_trl(used), rows) == [1.0, None, 1.0]
    line = raises.__code__.co_firstlineno + 2
    where = "" if group else f" (line {line} of test_libraries.py)"
    assert errors(from_trl(used), rows)[1] == f"ValueError: no answer{where}"


def test_from_trl_fails_a_group_if_the_function_raises_for_it_as_a_whole():
    def relative(completions):
        return [1.0 / (2 - len(completions))] * len(completions)

    assert scores(from_trl(relative), TEXTS) == [None, None]


@pytest.mark.parametrize("returned", [[1.0], [1.0] * 3, 1.0, None, {}, "11"])
def test_from_trl_refuses_what_is_no_list_of_that_length(returned):
    assert scores(from_trl(lambda completions: returned), TEXTS) == [None, None]


def test_from_trl_names_a_missing_column_and_those_that_are_there():
    [error, _] = errors(from_trl(lambda completions, solution: [1.0]), TEXTS)
    assert re.search("takes solution, .* only the columns answer, completion, group, level", error)
    assert "--ground-truth" in error


def test_from_trl_passes_the_named_column_as_the_ground_truth():
    def same(completions, ground_truth):
        return correct(completions, ground_truth)

    assert scores(from_trl(same), TEXTS, ground_truth="answer") == [1.0, 0.0]


@pytest.mark.parametrize("convert", [from_trl, from_verifiers])
def test_a_function_of_texts_fails_on_messages_and_does_not_score_0(convert):
    def in_text(completions, answer):
        return [float(a in completion) for a, completion in zip(answer, completions, strict=True)]

    def is_text(completion, answer):
        return float(completion == answer)

    for function in (in_text,) if convert is from_trl else (is_text,):
        assert "list of messages, not a text" in errors(convert(function), CHATS)[0]


def test_from_trl_takes_an_iterator_of_scores():
    assert scores(from_trl(lambda completions: (1.0 for _ in completions)), TEXTS) == [1.0, 1.0]


def test_from_trl_pointwise_is_a_rubric():
    tree = WeightedSum([from_trl(correct, mode="pointwise"), lambda a, o: 0.5], [1.0, 1.0])
    assert scores(tree, TEXTS) == [1.5, 0.5]
    with pytest.raises(GuerdonError, match="mode='pointwise'"):
        as_rubric(from_trl(correct))


# verl


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str == f"A: {ground_truth}")


def compute_details(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    assert not kwargs
    score = np.float32(compute_score(data_source, solution_str, ground_truth))
    return {"score": score, "acc": score == 1, "pred": solution_str, "level": extra_info["level"]}


async def compute_async(data_source, solution_str, ground_truth, extra_info=None):
    await asyncio.sleep(0)
    return compute_score(data_source, solution_str, ground_truth)


def compute_batch(data_sources, solution_strs, ground_truths, extra_infos, **kwargs):
    return list(map(compute_details, data_sources, solution_strs, ground_truths, extra_infos))


@pytest.mark.parametrize(
    "function",
    [
        compute_score,
        compute_details,
        compute_async,
        compute_batch,
        functools.partial(compute_score, "gsm8k"),
        lambda solution_str, ground_truth: compute_score("", solution_str, ground_truth),
    ],
)
@pytest.mark.parametrize("rows", [TEXTS, CHATS], ids=["texts", "chats"])
def test_from_verl_scores_as_verl_does(function, rows):
    assert scores(from_verl(function), rows, ground_truth="answer") == [1.0, 0.0]


def test_from_verl_reads_the_columns_of_its_data_sets():
    def same(data_source, solution_str, ground_truth, extra_info):
        return float((data_source, ground_truth, extra_info) == ("gsm8k", "42", {"index": 3}))

    row = {
        **CHATS[0],
        "data_source": "gsm8k",
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "extra_info": {"index": 3},
    }
    assert scores(from_verl(same), [row]) == [1.0]
    assert scores(from_verl(same), [row], ground_truth="reward_model.ground_truth") == [1.0]


def test_from_verl_a_dict_has_components_and_metrics():
    rows = list(score_rollouts(from_verl(compute_details), TEXTS, ground_truth="answer"))
    assert rows[0]["components"] == {"acc": 1.0, "level": 1.0}
    assert rows[0]["metrics"] == {"pred": "A: 42"}


def test_from_verl_without_a_ground_truth_is_no_score():
    assert scores(from_verl(compute_score), TEXTS) == [None, None]
    assert scores(from_verl(lambda solution_str: {"acc": 1.0}), TEXTS) == [None, None]


# verifiers


async def exact(completion, answer) -> float:
    return float(completion[-1]["content"] == f"A: {answer}")


def parsed(prompt, completion, answer, state, info, task, parser, **kwargs):
    assert (state["prompt"], state["completion"]) == (prompt, completion)
    assert (info, task, kwargs["level"]) == ({}, None, state["level"])
    return float(parser.parse_answer(completion) == f"A: {answer}")


def group(completions, answers, states, tasks, infos):
    assert [state["answer"] for state in states] == answers
    return [
        float(each[-1]["content"] == f"A: {a}")
        for each, a in zip(completions, answers, strict=True)
    ]


class ExactTask:
    async def exact_match(self, trace) -> float:
        return float(trace.last_reply == f"A: {self.data.answer}")


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (exact, CHATS),
        (parsed, CHATS),
        (parsed, TEXTS),
        (group, CHATS),
        (ExactTask.exact_match, CHATS),
        (ExactTask.exact_match, TEXTS),
        (lambda completion, answer, **kwargs: completion == f"A: {answer}", TEXTS),
        (lambda state: state["completion"] == f"A: {state['answer']}", TEXTS),
        (lambda completions, answers: correct(completions, answers), TEXTS),
        (lambda task, trace: trace.last_reply == f"A: {task.data.answer}", TEXTS),
    ],
)
def test_from_verifiers_scores_as_verifiers_does(function, rows):
    assert scores(from_verifiers(function), rows) == [1.0, 0.0]
    truths = [
        {**{k: v for k, v in row.items() if k != "answer"}, "x": row["answer"]} for row in rows
    ]
    if "data" not in str(function.__code__.co_names):
        assert scores(from_verifiers(function), truths, ground_truth="x") == [1.0, 0.0]


def test_from_verifiers_reads_info_that_is_json():
    row = {**CHATS[0], "info": '{"level": 3}'}
    assert scores(from_verifiers(lambda completion, info: info["level"]), [row]) == [3.0]


def test_from_verifiers_a_failure_or_a_missing_answer_is_no_score():
    rows = [{"messages": CHATS[0]["messages"]}]
    assert scores(from_verifiers(lambda completion, answer: answer in "42"), rows) == [None]
    assert scores(from_verifiers(lambda completion: 1 / 0), CHATS) == [None, None]


def test_from_verifiers_takes_another_parser():
    parser = SimpleNamespace(parse_answer=lambda completion: "A: 48")
    assert scores(from_verifiers(functools.partial(parsed, parser=parser)), TEXTS) == [0.0, 1.0]


# OpenRLHF


def reward_func(queries, prompts, labels, **kwargs):
    pairs = zip(queries, prompts, labels, strict=True)
    rewards = np.array([float(q[len(p) :] == f"A: {label}") for q, p, label in pairs])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"mean": rewards.mean()}}


async def rewards_async(queries, prompts, labels):
    return reward_func(queries, prompts, labels)["rewards"]


@pytest.mark.parametrize(
    "function",
    [
        reward_func,
        rewards_async,
        lambda queries, prompts, labels: rewards_of(queries, prompts, labels),
        lambda queries, prompts, labels: {"rewards": rewards_of(queries, prompts, labels)},
    ],
)
@pytest.mark.parametrize("rows", [TEXTS, CHATS], ids=["texts", "chats"])
def test_from_openrlhf_scores_as_openrlhf_does(function, rows):
    assert scores(from_openrlhf(function), rows, ground_truth="answer") == [1.0, 0.0]


def rewards_of(queries, prompts, labels):
    return reward_func(queries, prompts, labels)["rewards"].tolist()


def test_from_openrlhf_reads_a_label_and_logs_components():
    rows = [{**row, "label": row["answer"]} for row in TEXTS]
    first, _ = score_rollouts(from_openrlhf(reward_func), rows)
    assert first["components"] == {"scores": 1.0, "mean": 1.0}
    assert scores(from_openrlhf(reward_func), TEXTS) == [None, None]


# All of them


@pytest.mark.parametrize("library", ["trl", "verl", "verifiers", "openrlhf"])
def test_conversions_are_in_their_integration_and_in_all(library):
    name = f"from_{library}"
    assert getattr(integrations, name) is getattr(getattr(integrations, library), name)
    assert name in integrations.__all__


def test_a_converted_function_keeps_its_name_and_is_pickled_with_it():
    converted = from_trl(correct)
    assert (converted.__name__, converted.mode) == ("correct", "batch")
    again = pickle.loads(pickle.dumps(converted))
    assert scores(again, TEXTS) == [1.0, 0.0]
    assert again.fingerprint == converted.fingerprint != from_trl(correct_async).fingerprint
    assert from_trl(converted) is converted
    assert scores(copy.deepcopy(converted), TEXTS) == [1.0, 0.0]


@pytest.mark.parametrize("thing", [Correct, "correct", None])
def test_from_trl_refuses_what_is_no_function(thing):
    with pytest.raises(RewardFunctionError, match="from_trl converts functions"):
        from_trl(thing)


def test_from_verl_a_function_that_returns_an_awaitable_must_be_async():
    [error, _] = errors(from_verl(lambda solution_str: asyncio.sleep(0)), TEXTS)
    assert "isn't declared async" in error


SOURCE = """
def correct(completions, answer, **kwargs):
    return [float(text == f"A: {a}") for text, a in zip(completions, answer)]

class Correct:
    def __call__(self, completions, answer):
        return correct(completions, answer)

made = Correct()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize("name", ["correct", "Correct", "made", "made.__call__"])
def test_load_reward_converts_the_function_of_a_library(file, name):
    assert scores(load_reward(f"trl:{file}:{name}"), TEXTS) == [1.0, 0.0]


def test_load_reward_refuses_a_function_of_a_library_with_the_spec_that_converts_it(file):
    with pytest.raises(LoadError, match=rf"TRL: .*--reward trl:{re.escape(str(file))}:correct$"):
        load_reward(f"{file}:correct")
    with pytest.raises(LoadError, match="has no 'nothing'"):
        load_reward(f"trl:{file}:nothing")
