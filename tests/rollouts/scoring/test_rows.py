"""Result rows: what they have, and those of rollouts that have no score."""

import pytest

from guerdon.errors import RolloutError
from guerdon.rollouts.scoring.result_rows import ResultRow, failed_row, invalid_row

ALWAYS = [
    "id", "group", "score", "is_score_valid", "components", "step_rewards", "error", "fingerprint",
]  # fmt: skip


def test_result_row_has_its_required_keys():
    assert set(ResultRow.__required_keys__) == set(ALWAYS)
    assert set(ResultRow.__optional_keys__) == {
        "reason", "notes", "metrics", "steps", "step_components", "stopped_by", "trees",
        "log", "sandbox",
    }  # fmt: skip


def test_invalid_row_has_no_score():
    row = invalid_row("q7", "g", fingerprint="f", error="no luck", components={"a": 1.0})
    assert list(row) == ALWAYS
    assert row == {
        "id": "q7", "group": "g", "score": None, "is_score_valid": False, "components": {"a": 1.0},
        "step_rewards": None, "error": "no luck", "fingerprint": "f",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "line", "expected"),
    [
        ({"id": "q7", "group": "g"}, 3, ("q7", "g", "line 3: RolloutError: no good")),
        ({"group": None}, 3, (3, None, "line 3: RolloutError: no good")),
        ({"id": None}, 3, (None, None, "line 3: RolloutError: no good")),
        ([1], 3, (None, None, "line 3: RolloutError: no good")),
        (None, None, (None, None, "RolloutError: no good")),
    ],
    ids=["whole", "no id", "null id", "list", "nothing"],
)
def test_failed_row_of_a_line_that_is_not_a_rollout(row, line, expected):
    failed = failed_row(RolloutError("no good", line=line, row=row), "f")
    assert (failed["id"], failed["group"], failed["error"]) == expected
    assert (failed["score"], failed["is_score_valid"], failed["fingerprint"]) == (None, False, "f")
