"""From games of connect four to advantages: played, scored, aligned, and assigned credit."""

import sys

import pytest

from examples.connect4 import advantages
from guerdon import Message


@pytest.fixture(scope="module")
def records():
    return advantages.play_group(seed=3, games=12)


def test_play_group_begins_alike_and_continues_differently(records):
    assert {record.group for record in records} == {"seed 3"}
    assert {record.ended for record in records} == {"done"}
    assert len({record.messages[0].text for record in records}) == 1
    assert len({tuple(m.text for m in record.messages) for record in records}) > 1


def test_play_group_is_reproducible(records):
    again = advantages.play_group(seed=3, games=12)
    assert [record.messages for record in again] == [record.messages for record in records]


def test_assign_credit_gives_each_move_its_gigpo_advantage(records):
    batch, credit = advantages.assign_credit(records)
    assert len(batch.report) == 0
    assert set(batch.final_scores) <= {0.0, 0.5, 1.0}
    mean = sum(batch.final_scores) / len(batch)
    first = [rollout.steps[0] for rollout in batch]
    # The first position is the same in all games: the moves there are compared with each other.
    expected = sum(step.return_to_go for step in first) / len(first)
    for rollout, step in zip(batch, first, strict=True):
        discount = 0.95 ** (len(rollout.steps) - 1)
        assert step.return_to_go == pytest.approx(discount * rollout.score)
        assert step.advantage == pytest.approx(rollout.score - mean + step.return_to_go - expected)
    assert credit.diagnostics.anchor_sizes.max() >= len(batch)


def test_won_of_an_unfinished_game_is_an_error():
    message = Message(role="user", content='{"turn": "X", "winner": null, "mover": "X"}')
    result = advantages.won([message])
    assert (result.score, result.is_score_valid, result.error) == (
        None, False, "the game isn't over",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("winner", "score"), [('"X"', 1.0), ('"O"', 0.0), ("null", 0.5)], ids=["won", "lost", "draw"]
)
def test_won_scores_the_outcome(winner, score):
    text = f'{{"turn": null, "winner": {winner}, "mover": "X"}}'
    assert advantages.won([Message(role="user", content=text)]).score == score


def test_advantages_main_prints_a_row_for_each_opening(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["advantages"])
    assert advantages.main() == 0
    output = capsys.readouterr().out
    assert "32 games of connect four from seed 3" in output
    assert "column 3" in output
