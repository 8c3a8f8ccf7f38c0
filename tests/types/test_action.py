"""Action: what an agent does."""

import pytest
from pydantic import ValidationError

from guerdon import Action


class Move(Action):
    column: int


def test_action_reads_its_fields_from_json():
    move = Move.model_validate({"column": 3})
    assert (move.column, move.metadata) == (3, {})
    assert Move.model_validate_json(move.model_dump_json()) == move


@pytest.mark.parametrize("given", [{"colum": 3}, {"column": 3, "row": 1}, {}, {"column": "left"}])
def test_action_rejects_unknown_missing_and_invalid_fields(given):
    with pytest.raises(ValidationError):
        Move.model_validate(given)


def test_action_validates_assignments():
    move = Move(column=3)
    with pytest.raises(ValidationError):
        move.column = "left"
    with pytest.raises(ValidationError):
        move.row = 1
    move.column = 4
    assert move.column == 4


def test_action_metadata_is_not_shared():
    one, other = Move(column=1), Move(column=1)
    one.metadata["seen"] = True
    assert other.metadata == {}
