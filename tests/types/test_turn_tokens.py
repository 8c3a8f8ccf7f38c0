"""TurnTokens, and the column turn_tokens of a rollout."""

import pytest

from guerdon.errors import RolloutError
from guerdon.types import Rollout, TurnTokens

TOKENS = {
    "prompt_token_ids": [1],
    "completion_token_ids": [7],
    "logprobs": [0],
    "loss_mask": [0, 1],
}
MESSAGES = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]


def row(*tokens, **columns):
    return {"messages": MESSAGES, "turn_tokens": list(tokens)} | columns


@pytest.mark.parametrize("name", list(TOKENS)[:2])
def test_turn_tokens_requires_prompt_and_completion_for_a_loss_mask(name):
    with pytest.raises(ValueError, match="`loss_mask` requires prompt_token_ids and completion"):
        TurnTokens.model_validate({**TOKENS, name: None, "logprobs": None})


def test_rollout_to_step_data_has_the_tokens_of_each_turn():
    first, second = Rollout.from_row(row(TOKENS, None)).to_step_data()
    known = {name: TOKENS[name] for name in TOKENS if name != "logprobs"}
    assert (first.policy_logprobs, first.step_info) == ([0], {"assistant_turn_index": 0} | known)
    assert (second.policy_logprobs, second.step_info) == (None, {"assistant_turn_index": 1})


def test_rollout_from_row_has_tokens_for_played_turns_only():
    [step] = Rollout.from_row(row(TOKENS, first_turn=1)).to_step_data()
    assert step.step_info["completion_token_ids"] == [7]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (row(TOKENS), "`turn_tokens` must be a list with an entry for each of the 2 played"),
        (row() | {"turn_tokens": 3}, "`turn_tokens` must be a list"),
        (row(None, {"tokens": [1]}), r"turn_tokens\[1\]: tokens: Extra inputs"),
        (row(None, {**TOKENS, "loss_mask": [0, 2]}), r"turn_tokens\[1\]: loss_mask.1: "),
        (row(None, {**TOKENS, "loss_mask": [0, True]}), r"turn_tokens\[1\]: loss_mask.1: "),
    ],
)
def test_rollout_from_row_rejects_invalid_turn_tokens(given, match):
    with pytest.raises(RolloutError, match=match):
        Rollout.from_row(given)


def test_rollout_from_row_raises_the_error_of_a_document_that_could_not_be_read():
    with pytest.raises(RolloutError, match=r"^step_id 4: no source$"):
        Rollout.from_row({"ended": "invalid", "error": "step_id 4: no source"})
