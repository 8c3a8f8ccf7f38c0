"""Plain functions wherever a rubric is accepted."""

import functools

import pytest

from guerdon._loading import LIBRARIES
from guerdon.errors import AsyncRubricError, RewardFunctionError, RubricDefinitionError
from guerdon.rubrics import (
    FunctionRubric,
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    WeightedSum,
    as_rubric,
    reward_function,
)
from guerdon.rubrics.evaluation import is_async_callable
from guerdon.rubrics.state import (
    fingerprint_of,
)


def plain(action, observation):
    return 0.5


async def awaited(action, observation):
    return 0.5


def scaled(factor, action, observation):
    return factor


async def scaled_async(factor, action, observation):
    return factor


class Callable:
    def __call__(self, action, observation):
        return 0.5


class AsyncCallable:
    async def __call__(self, action, observation):
        return 0.5

    async def method(self, action, observation):
        return 0.5


SYNC = {
    "function": plain,
    "lambda": lambda action, observation: 0.5,
    "partial": functools.partial(scaled, 0.5),
    "object": Callable(),
    "method": Callable().__call__,
    "builtin": max,
}
ASYNC = {
    "function": awaited,
    "partial": functools.partial(scaled_async, 0.5),
    "object": AsyncCallable(),
    "method": AsyncCallable().method,
    "partial of object": functools.partial(AsyncCallable()),
}


class Parent(Rubric):
    """Calls its only child."""

    def __init__(self, members, key):
        super().__init__()
        self.members = members
        self.key = key

    def forward(self, action, observation):
        return self.members[self.key](action, observation)


CONTAINERS = {
    "Sequential": lambda f: Sequential(f),
    "Gate": lambda f: Gate(f, threshold=0.5),
    "WeightedSum": lambda f: WeightedSum([f], [1.0]),
    "Guarded": lambda f: Guarded(f),
    "RubricList": lambda f: Parent(RubricList([f]), 0),
    "RubricDict": lambda f: Parent(RubricDict({"f": f}), "f"),
    "as_rubric": as_rubric,
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("function", SYNC)
def test_as_rubric_converts_sync_callables_everywhere(container, function):
    assert CONTAINERS[container](SYNC[function])(0.25, 0.5) == 0.5


@pytest.mark.anyio
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("function", ASYNC)
async def test_as_rubric_converts_async_callables_everywhere(container, function):
    assert await CONTAINERS[container](ASYNC[function])(None, None) == 0.5


def test_as_rubric_returns_rubrics_unchanged():
    rubric = FunctionRubric(plain)
    assert as_rubric(rubric) is rubric
    assert Sequential(rubric)[0] is rubric


def test_function_rubric_repr_has_the_name_of_the_function():
    assert repr(as_rubric(plain)) == "plain()"
    assert repr(as_rubric(Callable())) == "Callable()"


@pytest.mark.parametrize(
    "function", [lambda: 1.0, lambda a: 1.0, lambda a, o, x: 1.0, lambda a, o, *, k: 1.0]
)
def test_as_rubric_rejects_functions_without_action_and_observation(function):
    with pytest.raises(
        RubricDefinitionError, match="can't be called with an action and an observation"
    ):
        as_rubric(function)


@pytest.mark.parametrize("thing", [Callable, Gate, int])
def test_as_rubric_rejects_classes(thing):
    with pytest.raises(RubricDefinitionError, match=f"{thing.__name__} is a class; instantiate it"):
        as_rubric(thing)


@pytest.mark.parametrize("thing", [None, 1.0, "guerdon:Rubric", [plain], {"a": plain}])
def test_as_rubric_rejects_other_objects(thing):
    with pytest.raises(RubricDefinitionError, match="is not a rubric"):
        as_rubric(thing)


def test_as_rubric_accepts_further_arguments_with_defaults_and_stars():
    assert as_rubric(lambda *args: float(len(args)))(1, 2) == 2.0
    assert as_rubric(lambda a, o, k=3: float(k))(1, 2) == 3.0


def test_function_rubric_reports_and_closes_an_undeclared_coroutine():
    rubric = Sequential(lambda action, observation: awaited(action, observation))
    with pytest.raises(AsyncRubricError, match=r"returned an awaitable.*async"):
        rubric(None, None)


def test_function_rubric_score_is_checked():
    with pytest.raises(ValueError, match="None; a score must be a finite float"):
        Sequential(lambda action, observation: None)(None, None)


# What offers a rubric of itself


class Offers:
    """As a reward function does."""

    def __init__(self):
        self.made = 0

    def __rubric__(self):
        self.made += 1
        return FunctionRubric(plain)

    def __call__(self, messages):
        raise AssertionError("it is no function of an action and an observation")


class AsyncOffers(Offers):
    def __rubric__(self):
        return FunctionRubric(awaited)


@pytest.mark.parametrize("container", CONTAINERS)
def test_as_rubric_uses_the_rubric_method_everywhere(container):
    offers = Offers()
    assert CONTAINERS[container](offers)(0.25, 0.5) == 0.5
    assert offers.made == 1


@pytest.mark.anyio
@pytest.mark.parametrize("container", CONTAINERS)
async def test_as_rubric_uses_the_rubric_method_of_an_async_object(container):
    assert await CONTAINERS[container](AsyncOffers())(None, None) == 0.5


def test_as_rubric_ignores_the_rubric_method_of_a_class():
    with pytest.raises(RubricDefinitionError, match="Offers is a class; instantiate it"):
        as_rubric(Offers)


def test_as_rubric_raises_the_error_of_the_rubric_method():
    class Refuses(Offers):
        def __rubric__(self):
            raise RubricDefinitionError("it has none today")

    with pytest.raises(RubricDefinitionError, match="it has none today"):
        Sequential(Refuses())


def messages_and_truth(messages, ground_truth=None):
    return 1.0


@pytest.mark.parametrize(
    "function",
    [
        messages_and_truth,
        functools.partial(messages_and_truth),
        lambda rollouts_messages, ground_truths=None: [1.0],
        functools.wraps(messages_and_truth)(lambda *args: 1.0),
    ],
    ids=["function", "partial", "batch", "wrapped"],
)
def test_as_rubric_rejects_bare_functions_on_messages(function):
    with pytest.raises(RubricDefinitionError, match=r"messages, .* @reward_function"):
        as_rubric(function)


def of_trl(prompts, completions, **kwargs):
    return [1.0]


def of_trl_alone(completions, **kwargs):
    return [1.0]


def of_trl_with_a_column(prompts, completions, ground_truth, **kwargs):
    return [1.0]


def of_verl(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0


def of_verl_in_short(solution_str, ground_truth):
    return 1.0


async def of_verl_async(data_source, solution_str):
    return 1.0


class OfTrl:
    def __call__(self, completions, **kwargs):
        return [1.0]

    def of_verifiers(self, completion, answer):
        return 1.0


def decorated(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "library"),
    [
        (of_trl, "trl"),
        (of_trl_alone, "trl"),
        (of_trl_with_a_column, "trl"),
        (OfTrl(), "trl"),
        (decorated(of_trl), "trl"),
        (functools.wraps(of_trl)(decorated(of_trl)), "trl"),
        (lambda completions, answer=None, **kwargs: [1.0], "trl"),
        (lambda completions, data_source, **kwargs: [1.0], "trl"),
        (lambda completions, labels: [1.0], "trl"),
        (lambda completion_ids, **kwargs: [1.0], "trl"),
        (lambda prompts, **kwargs: [1.0], "trl"),
        (lambda *, completions, answer: [1.0], "trl"),
        (of_verl, "verl"),
        (of_verl_in_short, "verl"),
        (of_verl_async, "verl"),
        (functools.partial(of_verl, "gsm8k"), "verl"),
        (lambda data_sources, solution_strs, ground_truths, extra_infos: [1.0], "verl"),
        (OfTrl().of_verifiers, "verifiers"),
        (lambda completion, **kwargs: 1.0, "verifiers"),
        (lambda answer, completion: 1.0, "verifiers"),
        (lambda parser, completion, answer: 1.0, "verifiers"),
        (lambda prompt, completion, answer, state: 1.0, "verifiers"),
        (lambda completions, answers, states: [1.0], "verifiers"),
        (lambda state, **kwargs: 1.0, "verifiers"),
        (lambda task, trace: 1.0, "verifiers"),
        (lambda queries, prompts, labels: [1.0], "openrlhf"),
        (lambda prompts, labels: [1.0], "openrlhf"),
    ],
)
def test_functions_of_other_libraries_are_refused_with_their_conversion(function, library):
    hint = rf"of {LIBRARIES[library]}: .*from_{library}\(.*--reward {library}:file.py:"
    with pytest.raises(RubricDefinitionError, match=hint):
        as_rubric(function)
    with pytest.raises(RubricDefinitionError, match=hint):
        Sequential(function)
    for mode in ("batch", "pointwise", None):
        with pytest.raises(RewardFunctionError, match=hint):
            reward_function(mode=mode)(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda response, label: 1.0,
        lambda response, ground_truth: 1.0,
        lambda predict_str, ground_truth: 1.0,
        lambda responses, answers: [1.0],
        lambda prompt, response: 1.0,
        lambda text, expected_answer: 1.0,
        lambda output, target="42": 1.0,
        lambda pred, gold: 1.0,
        lambda outputs, reference_outputs: 1.0,
        lambda preds, refs: 1.0,
        lambda predictions, targets: 1.0,
        lambda inputs, outputs: 1.0,
        lambda y, y_hat: 1.0,
        lambda code, test_cases: 1.0,
        lambda output, metadata: 1.0,
    ],
)
def test_functions_of_texts_are_refused_with_their_conversion(function):
    with pytest.raises(RubricDefinitionError, match=r"takes texts.*messages\[-1\]\.text"):
        as_rubric(function)
    with pytest.raises(RewardFunctionError, match=r"takes texts.*messages\[-1\]\.text"):
        reward_function(mode="pointwise")(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, o: 0.5,
        lambda x, y: 0.5,
        lambda action, obs, completions=None: 0.5,
        lambda action, observation, answer=None: 0.5,
        lambda answer, observation: 0.5,
        lambda text, observation: 0.5,
        lambda action, _: 0.5,
        decorated(lambda action, observation: 0.5),
    ],
)
def test_as_rubric_accepts_functions_of_a_step(function):
    assert as_rubric(function)("a", "o") == 0.5


@pytest.mark.parametrize(
    "function",
    [
        lambda messages, ground_truth: 0.5,
        lambda messages, answer=None, completion=None: 0.5,
        lambda conversation, expected: 0.5,
        lambda chat, state=None: 0.5,
        lambda c, completions=None: 0.5,
    ],
)
def test_reward_function_accepts_functions_of_messages(function):
    chat = [{"role": "assistant", "content": "42"}]
    assert reward_function(mode="pointwise")(function)(chat, "42").score == 0.5


@pytest.mark.parametrize(
    "function",
    [
        lambda messages: 1.0,
        lambda messages, ground_truth, level: 1.0,
        lambda *, messages, ground_truth=None: 1.0,
        lambda rollouts_messages, **kwargs: [1.0],
    ],
    ids=["alone", "with columns", "by name", "batch"],
)
def test_as_rubric_rejects_functions_on_messages_of_any_signature(function):
    with pytest.raises(RubricDefinitionError, match=r"messages, .* @reward_function"):
        as_rubric(function)


class Contains:
    """A callable that has a function inside, and is not async for that."""

    def __init__(self, func):
        self.func = func

    def __call__(self, action, observation):
        return 0.5


def test_is_async_callable_ignores_an_attribute_called_func():
    assert Sequential(Contains(awaited))(None, None) == 0.5
    assert is_async_callable(functools.partial(functools.partial(awaited)))
    assert not is_async_callable(Contains(awaited))
    assert not is_async_callable(functools.partial(Contains(awaited)))


# Fingerprints of functions and values


def judge(messages, limit=5):
    return float(limit)


def make(limit):
    return lambda messages: float(limit)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((), (None,)),
        ((judge,), (plain,)),
        ((judge,), (judge, None)),
        ((judge, {"limit": 5}), (judge, {"limit": 6})),
        ((judge, "pointwise"), (judge, "batch")),
        ((functools.partial(judge, limit=5),), (functools.partial(judge, limit=6),)),
        ((make(5),), (make(6),)),
        ((1,), ("1",)),
        ((1,), (1.0,)),
        ((True,), (1,)),
        (([1, 2],), ([2, 1],)),
        (("ab", "c"), ("a", "bc")),
        (({1, 2},), ({1, 3},)),
    ],
    ids=range(13),
)
def test_fingerprint_of_distinguishes_functions_and_values(one, other):
    assert fingerprint_of(*one) != fingerprint_of(*other)
    assert fingerprint_of(*one) == fingerprint_of(*one)


def test_fingerprint_of_ignores_the_order_of_a_mapping_or_a_set():
    assert fingerprint_of({"a": 1, "b": judge}) == fingerprint_of({"b": judge, "a": 1})
    assert fingerprint_of({"a", "b", "c"}) == fingerprint_of({"c", "b", "a"})


def test_fingerprint_of_equal_objects_is_equal():
    assert fingerprint_of(make(5)) == fingerprint_of(make(5))
    assert fingerprint_of(Contains(judge)) == fingerprint_of(Contains(judge))
    assert fingerprint_of(Contains(judge)) != fingerprint_of(Contains(plain))
