"""@reward_function: what it takes, what a call gives, what becomes of failures."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import pickle
import sys
import typing
from typing import List, Optional  # noqa: UP035  annotations as people spell them

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import RewardFunctionError
from guerdon.rubrics.functions import RewardFunction, as_reward_function, reward_function
from guerdon.rubrics.functions.function import takes_messages
from guerdon.types import EvaluateResult, Message, StepOutput

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
OTHER = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "It is 41."}]


@reward_function
def answered(messages, ground_truth=None, *, bonus: float = 0.0):
    """The last message contains the ground truth."""
    return float(ground_truth in messages[-1].text) + bonus


@reward_function
async def awaited(messages, ground_truth=None):
    """The same, later."""
    await anyio.lowlevel.checkpoint()
    return float(ground_truth in messages[-1].text)


@reward_function
def shortest(rollouts_messages, ground_truths=None, **kwargs):
    """The shortest answer of all wins."""
    lengths = [len(messages[-1].text) for messages in rollouts_messages]
    return [float(length == min(lengths)) for length in lengths]


def bare(messages, ground_truth=None):
    return float(ground_truth == "42")


def unnamed(them, truths):
    return [float(truth == "42") for truth in truths]


def raiser(error):
    def reward(messages):
        raise error

    return reward


def async_raiser(error):
    async def reward(messages):
        raise error

    return reward


# What may be decorated


class Judge:
    def __call__(self, messages, ground_truth=None):
        return float(ground_truth == "42")

    def method(self, messages, ground_truth=None):
        return float(ground_truth == "42")

    @classmethod
    def of_class(cls, messages, ground_truth=None):
        return float(ground_truth == "42")

    @staticmethod
    def static(messages, ground_truth=None):
        return float(ground_truth == "42")


class AsyncJudge:
    async def __call__(self, messages, ground_truth=None):
        return float(ground_truth == "42")

    async def method(self, messages, ground_truth=None):
        return float(ground_truth == "42")


class Holder:
    """A callable object with attributes of its own."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __call__(self, messages, ground_truth=None):
        return float(ground_truth == "42")


def scaled(factor, messages, ground_truth=None):
    return factor * float(ground_truth == "42")


async def scaled_async(factor, messages, ground_truth=None):
    return factor * float(ground_truth == "42")


@functools.wraps(bare)
def wrapped(*args, **kwargs):
    return bare(*args, **kwargs)


def keyword_only(*, messages, ground_truth):
    return float(ground_truth == "42")


def messages_last(limit=5, *, ground_truth=None, messages):
    return float(ground_truth == "42")


def messages_positional(messages, /, ground_truth=None):
    return float(ground_truth == "42")


def everything(messages, **kwargs):
    return float(kwargs["ground_truth"] == "42")


SYNC = {
    "function": bare,
    "lambda": lambda messages, ground_truth: float(ground_truth == "42"),
    "keyword only": keyword_only,
    "messages last": messages_last,
    "messages positional": messages_positional,
    "kwargs": everything,
    "partial by place": functools.partial(scaled, 1.0),
    "partial by name": functools.partial(scaled, factor=1.0),
    "object": Judge(),
    "method": Judge().method,
    "class method": Judge.of_class,
    "static method": Judge.static,
    "wrapped": wrapped,
    "reward function": reward_function(bare),
}
ASYNC = {
    "function": awaited.function,
    "partial": functools.partial(scaled_async, 1.0),
    "object": AsyncJudge(),
    "method": AsyncJudge().method,
    "partial of an object": functools.partial(AsyncJudge()),
    "reward function": awaited,
}


@pytest.mark.parametrize("name", SYNC)
def test_sync_callables_are_reward_functions(name):
    function = reward_function(SYNC[name])
    assert isinstance(function, RewardFunction)
    assert not function.is_async
    assert function(CHAT, ground_truth="42") == EvaluateResult(score=1.0)
    assert function(CHAT, ground_truth="41") == EvaluateResult(score=0.0)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ASYNC)
async def test_async_callables_are_reward_functions(name):
    function = reward_function(ASYNC[name])
    assert function.is_async
    assert await function(CHAT, ground_truth="42") == EvaluateResult(score=1.0)
    assert await function(CHAT, ground_truth="41") == EvaluateResult(score=0.0)


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "strict"},
        {"function": None},
        {"parameters": {"limit": 3}},
        {"is_async": True},
        {"_file": 3},
        {"func": awaited.function},
        {"__name__": "judge"},
    ],
    ids=lambda attributes: next(iter(attributes)),
)
def test_reward_function_a_callable_object_may_have_any_attributes(attributes):
    function = reward_function(Holder(**attributes))
    assert (function.mode, function.is_async) == ("pointwise", False)
    assert function(CHAT, ground_truth="42").score == 1.0


@pytest.mark.parametrize(
    "function",
    [
        lambda messages, ground_truth, /: float(ground_truth == "42"),
        lambda limit=5, messages=None, ground_truth=None, /: float(ground_truth == "42"),
    ],
    ids=["first", "later"],
)
def test_reward_function_positional_only_parameters_but_the_messages_are_rejected_when_decorated(
    function,
):
    with pytest.raises(RewardFunctionError, match=r"<lambda> takes '.*' by position only"):
        reward_function(function)


def test_reward_function_a_method_that_is_not_bound_is_rejected_when_it_is_decorated():
    with pytest.raises(RewardFunctionError, match=r"reward_function\(thing\.method\)"):
        reward_function(Judge.method)


@pytest.mark.parametrize("thing", [3, None.__class__, Judge, "reward", EvaluateResult])
def test_reward_function_rejects_what_is_not_a_function(thing):
    with pytest.raises(RewardFunctionError, match="@reward_function decorates functions, got"):
        reward_function(thing)


def test_reward_function_a_function_without_a_conversation_is_rejected_when_it_is_decorated():
    with pytest.raises(RewardFunctionError, match="takes no 'messages'"):

        @reward_function
        def reward(action, observation):
            return 1.0


@pytest.mark.parametrize("mode", ["pointwise", "batch"])
def test_reward_function_accepts_a_mode(mode):
    @reward_function(mode=mode)
    def reward(them, truths):
        return [float(truth == "42") for truth in truths] if mode == "batch" else 1.0

    assert reward.mode == mode
    if mode == "batch":
        assert [result.score for result in reward([CHAT, CHAT], ["42", "41"])] == [1.0, 0.0]
    else:
        assert reward(CHAT, "42").score == 1.0


@pytest.mark.parametrize("mode", ["batch-wise", "batchwise", "batch_wise"])
def test_reward_function_accepts_batch_wise_as_the_batch_mode(mode):
    @reward_function(mode=mode)
    def shortest(rollouts, truths=None):
        return [float(len(messages) == 1) for messages in rollouts]

    assert shortest.mode == "batch"
    assert [each.score for each in shortest([CHAT[:1], CHAT])] == [1.0, 0.0]
    with pytest.raises(RewardFunctionError, match="its mode is 'batch'"):
        reward_function(mode=mode)(bare)


def test_reward_function_accepts_point_wise_as_the_pointwise_mode():
    assert reward_function(mode="point-wise")(bare).mode == "pointwise"


def test_reward_function_rejects_a_wrong_mode():
    with pytest.raises(RewardFunctionError, match="its mode is 'batch'"):
        reward_function(mode="batch")(bare)
    with pytest.raises(RewardFunctionError, match="`mode` must be 'pointwise' or 'batch', got"):
        reward_function(mode="group")(bare)


def test_reward_function_brackets_without_a_mode_are_the_same():
    assert reward_function()(bare)(CHAT, "42").score == 1.0


# Messages


def unannotated(messages):
    return seen(messages)


def as_list(messages: List[Message]):  # noqa: UP006
    return seen(messages)


def as_builtin(messages: list[Message]):
    return seen(messages)


def as_optional(messages: Optional[List[Message]] = None):  # noqa: UP006, UP045
    return seen(messages)


def as_text(messages: "List[Message]"):  # noqa: UP006, UP037
    return seen(messages)


def as_dicts(messages: list[dict[str, typing.Any]]):
    return seen(messages)


def as_nothing_known(messages: NotDefinedAnywhere):  # noqa: F821
    return seen(messages)


def seen(messages):
    assert type(messages) is list
    assert all(type(message) is Message for message in messages)
    assert messages[-1].text == messages[-1]["content"] == "42"
    return 1.0


@pytest.mark.parametrize("given", [CHAT, tuple(CHAT), [Message(**each) for each in CHAT]])
@pytest.mark.parametrize(
    "function",
    [unannotated, as_list, as_builtin, as_optional, as_text, as_dicts, as_nothing_known],
    ids=lambda function: function.__name__,
)
def test_reward_function_messages_arrive_as_messages_however_they_are_annotated(function, given):
    result = reward_function(function)(given)
    assert (result.score, result.error) == (1.0, None)


def test_reward_function_messages_of_a_batch_arrive_as_messages():
    @reward_function
    def reward(rollouts_messages: List[List[Message]]):  # noqa: UP006
        return [seen(messages) for messages in rollouts_messages]

    assert [result.score for result in reward([CHAT, tuple(CHAT)])] == [1.0, 1.0]


@pytest.mark.parametrize("kind", [dict, lambda each: Message(**each)], ids=["dict", "Message"])
def test_reward_function_the_callers_list_is_not_changed(kind):
    @reward_function
    def pops(messages):
        messages.pop()
        messages.clear()
        return 1.0

    @reward_function
    def pops_all(rollouts_messages, ground_truths):
        count = len(rollouts_messages)
        rollouts_messages[0].clear()
        rollouts_messages.clear()
        ground_truths.clear()
        return [1.0] * count

    chat = [kind(each) for each in CHAT]
    batch, truths = [list(chat), list(chat)], ["a", "b"]
    assert pops(chat).score == 1.0
    assert [result.score for result in pops_all(batch, truths)] == [1.0, 1.0]
    assert chat == [kind(each) for each in CHAT]
    assert batch == [chat, chat]
    assert truths == ["a", "b"]


@pytest.mark.parametrize("messages", [None, "hi", 3, {"role": "user"}, [3], [{"role": "robot"}]])
def test_reward_function_invalid_messages_make_the_result_invalid(messages):
    result = answered(messages, "42")
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error.startswith(
        ("InvalidArgumentError: `messages", "InvalidArgumentError: messages")
    )


# Arguments


def test_reward_function_accepts_arguments_by_name():
    assert answered(messages=CHAT, ground_truth="42", bonus=0.5).score == 1.5


def test_reward_function_defaults_stay_where_nothing_is_given():
    assert answered(CHAT, "42").score == 1.0


def test_reward_function_what_the_function_does_not_take_is_left_out():
    assert answered(CHAT, "42", id="q7", group=3).score == 1.0


def test_reward_function_kwargs_take_all_the_rest():
    @reward_function
    def reward(messages, **kwargs):
        return EvaluateResult(score=1.0, metrics=kwargs)

    names = {"id": "q7", "function": 1, "others": 2, "mode": 3}
    assert reward(CHAT, "42", **names).metrics == {"ground_truth": "42", **names}


def test_reward_function_a_missing_argument_is_reported():
    result = reward_function(lambda messages, limit: 1.0)(CHAT)
    assert (result.score, result.is_score_valid) == (None, False)
    assert "missing 1 required positional argument: 'limit'" in result.error


def test_reward_function_the_signature_is_bound_once(monkeypatch):
    calls = []
    monkeypatch.setattr(inspect, "signature", lambda *args, **kwargs: calls.append(args))
    monkeypatch.setattr(inspect, "iscoroutinefunction", lambda each: calls.append(each))
    for _ in range(3):
        assert answered(CHAT, "42", bonus=0.5).score == 1.5
        assert [result.score for result in shortest([CHAT, OTHER])] == [1.0, 0.0]
    assert calls == []


def test_reward_function_passes_positional_and_named_arguments():
    """Not to the ground truth, which it doesn't take."""

    @reward_function
    def reward(messages, limit=5):
        return float(limit)

    assert reward(CHAT, limit=3).score == 3.0
    assert reward(CHAT, "42").score == 5.0
    assert answered(CHAT, "42", self=1, others=2).score == 1.0


# What is returned


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_reward_function_a_finite_float_is_the_score(score):
    assert reward_function(lambda messages: score)(CHAT) == EvaluateResult(score=score)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "1",
        math.nan,
        -math.inf,
        (1.0,),
        [1.0],
        np.array([1.0]),
        np.float64("nan"),
        {"scores": 1.0},
        {"score": math.nan},
    ],
    ids=repr,
)
def test_reward_function_invalid_return_values_make_the_result_invalid(value):
    result = reward_function(lambda messages: value)(CHAT)
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error.startswith("RewardFunctionError: <lambda> returned ")


def test_reward_function_that_gives_no_score_is_a_failure_and_never_0():
    @reward_function
    def judged(messages):
        return EvaluateResult(score=None)

    result = judged(CHAT)
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error == "the evaluation gave no score"


def test_reward_function_dicts_and_results_are_returned_as_results():
    outputs = [{"step_index": 0, "base_reward": 0.5}]
    given = {"score": 0.5, "step_outputs": outputs}
    result = EvaluateResult(**given)
    assert reward_function(lambda messages: given)(CHAT) == result
    assert reward_function(lambda messages: result)(CHAT) is result
    assert result.step_outputs == [StepOutput(step_index=0, base_reward=0.5)]


def test_reward_function_closes_and_reports_a_coroutine_of_a_sync_function():
    result = reward_function(lambda messages: awaited.function(messages, "42"))(CHAT)
    assert "returned an awaitable, but it isn't declared async" in result.error


def test_reward_function_rejects_generators():
    def generator(messages):
        yield 1.0

    async def async_generator(messages):
        yield 1.0

    for function in (generator, async_generator):
        result = reward_function(function)(CHAT)
        assert "a reward function returns a finite float" in result.error


# Batches


def test_reward_function_a_batch_has_one_result_for_each_rollout():
    results = shortest([OTHER, CHAT, OTHER])
    assert [result.score for result in results] == [0.0, 1.0, 0.0]
    assert shortest([]) == []


def test_reward_function_a_batch_takes_ground_truths_one_for_each():
    @reward_function
    def reward(rollouts_messages, ground_truths):
        return [float(truth == "42") for truth in ground_truths]

    assert [result.score for result in reward([CHAT] * 3, ["42", "41", "42"])] == [1.0, 0.0, 1.0]
    named = reward(rollouts_messages=[CHAT], ground_truths=["42"])
    assert [result.score for result in named] == [1.0]
    assert [result.score for result in reward([CHAT] * 2)] == [0.0, 0.0]


@pytest.mark.parametrize("truths", [["42"], ["42"] * 4, "abc", {"a": 1}, 3])
def test_reward_function_another_number_of_ground_truths_is_an_error(truths):
    results = shortest([CHAT, CHAT, CHAT], truths)
    assert len(results) == 3
    for result in results:
        assert not result.is_score_valid
        assert "must be a list with one for each of 3 rollouts" in result.error


@pytest.mark.parametrize("given", [3, 5, 0])
def test_reward_function_another_number_of_results_is_an_error(given):
    results = reward_function(lambda rollouts_messages: [1.0] * given)([CHAT] * 4)
    assert len(results) == 4
    for result in results:
        assert (result.score, result.is_score_valid) == (None, False)
        expected = f"<lambda> must return one result for each of 4 rollouts, got {given}"
        assert expected in result.error


def test_reward_function_a_batch_that_raises_makes_each_of_its_results_invalid():
    results = reward_function(lambda rollouts_messages: 1 / 0)([CHAT, CHAT])
    assert [result.is_score_valid for result in results] == [False, False]
    assert all(result.error.startswith("ZeroDivisionError: ") for result in results)


def test_results_of_a_batch_that_raised_share_nothing():
    one, other = reward_function(lambda rollouts_messages: 1 / 0)([CHAT, CHAT])
    one.metrics["seen"] = 1
    one.error = "changed"
    assert other.metrics == {}
    assert other.error.startswith("ZeroDivisionError: ")


def test_one_bad_result_of_a_batch_is_invalid_alone():
    results = reward_function(lambda rollouts_messages: [1.0, None, 0.5])([CHAT] * 3)
    assert [result.score for result in results] == [1.0, None, 0.5]
    assert results[1].error.startswith("RewardFunctionError: <lambda>[1] returned None")


def test_reward_function_names_an_invalid_conversation_of_a_batch():
    results = shortest([CHAT, [{"role": "robot"}]])
    assert len(results) == 2
    for result in results:
        assert "rollouts_messages[1][0].role" in result.error


@pytest.mark.parametrize("given", ["abc", b"abc", None, 3, {"messages": CHAT}], ids=repr)
def test_reward_function_invalid_lists_of_conversations_make_the_results_invalid(given):
    results = shortest(given)
    assert results
    for result in results:
        assert not result.is_score_valid
        assert "`rollouts_messages` must be a list" in result.error
        assert "must be a list" in result.error


@pytest.mark.anyio
async def test_reward_function_a_batch_may_be_async():
    @reward_function
    async def reward(rollouts_messages):
        await anyio.lowlevel.checkpoint()
        return np.arange(len(rollouts_messages))

    assert [result.score for result in await reward([CHAT] * 3)] == [0.0, 1.0, 2.0]


# Failures


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no answer"), "ValueError: no answer"),
        (KeyError("judge"), "KeyError: 'judge'"),
        (AssertionError(), "AssertionError"),
        (RecursionError("deep"), "RecursionError: deep"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("both", [ValueError()]), "ExceptionGroup: both"),
        (StopIteration(), "StopIteration"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_reward_function_reports_what_the_function_raises(error, expected):
    result = reward_function(raiser(error))(CHAT)
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error.startswith(expected)
    assert result.step_outputs is None


def test_reward_function_reports_the_line_that_raised():
    result = reward_function(lambda messages: 1 / 0)(CHAT)
    line = inspect.currentframe().f_lineno - 1
    assert result.error == f"ZeroDivisionError: division by zero (line {line} of test_function.py)"


def test_reward_function_a_function_that_exits_is_a_failure_like_any_other():
    result = reward_function(lambda messages: sys.exit("no licence"))(CHAT)
    assert result.error.startswith("SystemExit: no licence")


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_reward_function_interrupts_pass(error):
    with pytest.raises(error):
        reward_function(raiser(error()))(CHAT)


@pytest.mark.anyio
async def test_reward_function_reports_what_an_async_function_raises():
    for error in (ValueError("no answer"), SystemExit(3)):
        result = await reward_function(async_raiser(error))(CHAT)
        assert (result.score, result.is_score_valid) == (None, False)
        assert result.error.startswith(f"{type(error).__name__}: {error}")


@pytest.mark.anyio
async def test_reward_function_reports_invalid_messages_of_an_async_function():
    result = await awaited(3, "42")
    assert result.error.startswith("InvalidArgumentError: `messages` must be a list of messages")


@pytest.mark.anyio
async def test_reward_function_interrupts_pass_an_async_function():
    with pytest.raises(KeyboardInterrupt):
        await reward_function(async_raiser(KeyboardInterrupt()))(CHAT)


@pytest.mark.anyio
async def test_reward_function_a_cancellation_passes():
    given = []
    with anyio.CancelScope() as scope:

        @reward_function
        async def cancelled(messages):
            scope.cancel()
            await anyio.lowlevel.checkpoint()

        given.append(await cancelled(CHAT))
    assert scope.cancelled_caught
    assert given == []


def test_evaluate_or_raise_raises_the_exception():
    with pytest.raises(ZeroDivisionError):
        reward_function(lambda messages: 1 / 0).evaluate_or_raise(CHAT)
    with pytest.raises(RewardFunctionError, match="returned None"):
        reward_function(lambda messages: None).evaluate_or_raise(CHAT)
    with pytest.raises(RewardFunctionError, match="one result for each of 2 rollouts, got 1"):
        reward_function(lambda rollouts_messages: [1.0]).evaluate_or_raise([CHAT, CHAT])
    with pytest.raises(ZeroDivisionError):
        reward_function(lambda messages: 1 / 0).function(CHAT)


@pytest.mark.anyio
async def test_evaluate_or_raise_raises_the_exception_of_an_async_function():
    with pytest.raises(ValueError, match="no answer"):
        await reward_function(async_raiser(ValueError("no answer"))).evaluate_or_raise(CHAT)


# A function still


def test_reward_function_has_the_name_and_docstring_of_the_function():
    assert answered.__name__ == answered.__qualname__ == "answered"
    assert answered.__doc__ == "The last message contains the ground truth."
    assert answered.__module__ == __name__
    assert answered.__wrapped__ is answered.function
    assert inspect.signature(answered) == inspect.signature(answered.function)
    assert list(inspect.signature(answered).parameters) == ["messages", "ground_truth", "bonus"]


def test_reward_function_has_a_repr():
    assert repr(answered) == "<pointwise reward function answered>"
    assert repr(shortest) == "<batch reward function shortest>"


def test_reward_function_a_callable_object_is_called_by_its_class():
    assert reward_function(Judge()).__name__ == "Judge"


@pytest.mark.parametrize("function", [answered, awaited, shortest], ids=lambda f: f.__name__)
def test_reward_function_a_function_of_a_module_is_pickled_and_copied_as_itself(function):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(function, protocol)) is function
    assert copy.copy(function) is function
    assert copy.deepcopy({"f": function})["f"] is function


def test_reward_function_a_bare_function_of_a_module_is_pickled_with_its_mode():
    made = pickle.loads(pickle.dumps(reward_function(bare)))
    assert isinstance(made, RewardFunction)
    assert (made.function, made.mode) == (bare, "pointwise")
    made = pickle.loads(pickle.dumps(reward_function(mode="batch")(unnamed)))
    assert (made.function, made.mode) == (unnamed, "batch")


def test_reward_function_of_no_module_can_not_be_pickled():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(reward_function(lambda messages: 1.0))


# Bare functions


@pytest.mark.parametrize(
    "function",
    [bare, keyword_only, messages_positional, everything, shortest.function, Judge().method],
    ids=lambda function: function.__name__,
)
def test_reward_function_a_bare_function_on_messages_is_known(function):
    assert takes_messages(function)


@pytest.mark.parametrize(
    "function",
    [wrapped, functools.partial(scaled, 1.0), Judge(), AsyncJudge(), Judge().method],
    ids=["wrapped", "partial", "object", "async object", "method"],
)
def test_reward_function_a_bare_callable_on_messages_is_known(function):
    assert takes_messages(function)


@pytest.mark.parametrize(
    "thing",
    [lambda action, observation: 1.0, lambda *messages: 1.0, max, print, 3, None, Judge],
    ids=["function", "stars", "max", "print", "int", "None", "class"],
)
def test_reward_function_other_things_take_no_messages(thing):
    messages = "local"
    assert not takes_messages(thing)
    assert messages


# Columns of a dataset that have the names of its arguments


def given_first(chat, **columns):
    return float(len(chat))


def given_by_name(level=0, *, messages, **columns):
    return float(len(messages))


@pytest.mark.parametrize(
    ("function", "column"),
    [
        (reward_function(lambda messages, **columns: float(len(messages))), "messages"),
        (reward_function(lambda messages: float(len(messages))), "messages"),
        (reward_function(lambda messages, /, **columns: float(len(messages))), "messages"),
        (reward_function(mode="pointwise")(given_first), "chat"),
        (reward_function(given_by_name), "messages"),
        (as_reward_function(lambda action, observation: float(action.place + 1)), "messages"),
    ],
)
def test_reward_function_evaluate_ignores_a_column_named_like_the_messages(function, column):
    chat = [{"role": "assistant", "content": "A: 42"}]
    result = function.evaluate(chat, "42", {column: [chat[0]] * 3, "ground_truth": "41"})
    assert (result.score, result.error) == (1.0, None)


def test_reward_function_evaluate_ignores_a_column_named_like_the_messages_of_a_batch():
    @reward_function
    def batch(rollouts_messages, **columns):
        return [float(len(messages)) for messages in rollouts_messages]

    chat = [{"role": "assistant", "content": "A: 42"}]
    [result] = batch.evaluate([chat], None, {"rollouts_messages": [[]], "messages": [[]]})
    assert (result.score, result.error) == (1.0, None)


def test_reward_function_call_prefers_the_messages_that_it_is_given_by_position():
    @reward_function
    def said(messages, ground_truth=None):
        return float(ground_truth in messages[-1].text)

    chat = [{"role": "assistant", "content": "A: 42"}]
    row = {"messages": [{"role": "assistant", "content": "A: 41"}], "ground_truth": "41"}
    assert said(chat, "42", **row).score == 1.0
    assert said(**row).score == 1.0
    assert said(chat, ground_truth="41").score == 0.0
