"""parameters_of: what a reward function takes, read once."""

import functools

import pytest

from guerdon.errors import RewardFunctionError
from guerdon.rubrics.functions.function import parameters_of


def first(messages, ground_truth=None, limit=5):
    return 1.0


def batch(rollouts_messages, ground_truths, *, scale=1.0):
    return [1.0]


def later(limit, messages, ground_truth=None):
    return 1.0


def keyword_only(*, messages, ground_truth, limit=5):
    return 1.0


def everything(messages, **kwargs):
    return 1.0


def alone(messages):
    return 1.0


def unnamed(conversation, answer, limit=5):
    return 1.0


class Judge:
    def __call__(self, messages, ground_truth=None, *, limit=5):
        return 1.0

    def method(self, messages, ground_truth=None, *, limit=5):
        return 1.0

    @classmethod
    def of_class(cls, messages, ground_truth=None, *, limit=5):
        return 1.0

    @staticmethod
    def static(messages, ground_truth=None, *, limit=5):
        return 1.0


# Modes


@pytest.mark.parametrize(
    ("function", "mode"),
    [
        (first, "pointwise"),
        (later, "pointwise"),
        (keyword_only, "pointwise"),
        (everything, "pointwise"),
        (batch, "batch"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_parameters_of_infers_the_mode_from_the_parameter(function, mode):
    assert parameters_of(function).mode == mode
    assert parameters_of(function, mode) == parameters_of(function)


@pytest.mark.parametrize("mode", ["pointwise", "batch"])
def test_parameters_of_accepts_any_name_with_a_mode(mode):
    parameters = parameters_of(unnamed, mode)
    assert parameters.mode == mode
    assert parameters.messages is None
    assert parameters.ground_truth == "answer"
    assert parameters.named == {"limit"}


@pytest.mark.parametrize(
    ("function", "mode", "message"),
    [
        (first, "batch", "first takes 'messages', but its mode is 'batch'"),
        (batch, "pointwise", "takes 'rollouts_messages', but its mode is 'pointwise'"),
        (
            lambda messages, rollouts_messages: 1.0,
            None,
            "takes 'messages' and 'rollouts_messages'; 'messages' is one conversation",
        ),
        (
            lambda messages, rollouts_messages: 1.0,
            "batch",
            "takes 'messages' and 'rollouts_messages', but its mode is 'batch'",
        ),
        (unnamed, None, r"unnamed\(conversation, answer, limit\) takes no 'messages'"),
        (lambda: 1.0, None, r"<lambda>\(\) takes no 'messages'"),
        (lambda: 1.0, "pointwise", r"<lambda>\(\) takes no 'messages'"),
        (lambda *args: 1.0, "pointwise", "takes no 'messages'"),
        (lambda **kwargs: 1.0, "pointwise", "takes no 'messages'"),
        (lambda **kwargs: 1.0, None, "takes no 'messages'"),
        (first, "pairwise", "`mode` must be 'pointwise' or 'batch', got 'pairwise'"),
        (max, None, "max has no readable signature"),
    ],
    ids=range(12),
)
def test_parameters_of_rejects_functions_without_messages(function, mode, message):
    with pytest.raises(RewardFunctionError, match=message):
        parameters_of(function, mode)


@pytest.mark.parametrize(
    "function", [lambda *messages: 1.0, lambda **messages: 1.0], ids=["args", "kwargs"]
)
def test_parameters_of_rejects_variadic_messages(function):
    with pytest.raises(RewardFunctionError, match="messages"):
        parameters_of(function)


# Arguments


def test_parameters_of_passes_messages_by_position_if_they_come_first():
    assert parameters_of(first).messages is None
    assert parameters_of(everything).messages is None
    assert parameters_of(lambda messages, /: 1.0).messages is None


@pytest.mark.parametrize("function", [later, keyword_only], ids=lambda each: each.__name__)
def test_parameters_of_passes_messages_by_name_otherwise(function):
    assert parameters_of(function).messages == "messages"


@pytest.mark.parametrize(
    "function",
    [Judge(), Judge().method, Judge().of_class, Judge.of_class, Judge.static],
    ids=["object", "method", "class method", "class method of the class", "static method"],
)
def test_parameters_of_ignores_self(function):
    parameters = parameters_of(function)
    assert parameters.messages is None
    assert parameters.ground_truth == "ground_truth"
    assert parameters.named == {"limit"}


def test_parameters_of_what_a_partial_was_given_can_still_be_overridden():
    parameters = parameters_of(functools.partial(later, limit=3))
    assert parameters.takes("limit")
    assert parameters.messages == "messages"


def test_parameters_of_what_a_partial_was_given_by_place_is_gone():
    parameters = parameters_of(functools.partial(later, 3))
    assert not parameters.takes("limit")
    assert parameters.messages is None


def test_parameters_of_a_wrapped_function_has_the_signature_of_what_it_wraps():
    @functools.wraps(first)
    def wrapper(*args, **kwargs):
        return first(*args, **kwargs)

    assert parameters_of(wrapper) == parameters_of(first)


def test_parameters_of_passes_only_known_arguments():
    given = {"limit": 3, "id": "q7"}
    assert parameters_of(first).arguments("42", given) == {"limit": 3, "ground_truth": "42"}
    assert parameters_of(alone).arguments("42", given) == {}
    assert parameters_of(batch).arguments(["42"], given) == {"ground_truths": ["42"]}
    assert given == {"limit": 3, "id": "q7"}


def test_parameters_of_kwargs_take_everything():
    parameters = parameters_of(everything)
    assert parameters.takes("anything")
    assert parameters.arguments("42", {"id": 1}) == {"id": 1, "ground_truth": "42"}


def test_parameters_of_the_ground_truth_has_its_own_place():
    """A column of that name doesn't come before what was given outright."""
    for function in (first, everything):
        assert parameters_of(function).arguments("42", {"ground_truth": "41"}) == {
            "ground_truth": "42"
        }


def test_parameters_of_a_second_parameter_is_no_ground_truth_where_messages_are_named():
    assert parameters_of(lambda messages, limit: 1.0).ground_truth is None
    assert parameters_of(lambda messages, limit: 1.0).takes("limit")


def test_parameters_of_messages_are_not_among_the_other_names():
    for function in (first, later, keyword_only, everything):
        parameters = parameters_of(function)
        assert not {"messages", "ground_truth"} & parameters.named
