"""State and EnvironmentMetadata: what an environment reports about itself."""

import pytest
from pydantic import ValidationError

from guerdon import State
from guerdon.types import EnvironmentMetadata


class Level(State):
    level: int = 1


def test_state_by_default_is_before_the_first_reset():
    assert (State().episode_id, State().step_count) == (None, 0)


def test_state_keeps_further_fields_in_json():
    state = State(episode_id="ep-1", step_count=3, level=2)
    assert state.level == 2
    assert State.model_validate_json(state.model_dump_json()) == state
    assert Level.model_validate({"level": 4, "found": ["key"]}).found == ["key"]


@pytest.mark.parametrize("count", [-1, 1.5, "many", None])
def test_state_step_count_is_an_integer_of_at_least_0(count):
    with pytest.raises(ValidationError):
        State(step_count=count)
    state = State()
    with pytest.raises(ValidationError):
        state.step_count = count
    assert state.step_count == 0


def test_state_step_count_can_be_incremented():
    state = State()
    state.step_count += 1
    assert state.step_count == 1


def test_environment_metadata_requires_name_and_description_and_rejects_others():
    assert EnvironmentMetadata(name="Maze", description="Find out.").version == "1.0.0"
    for wrong in ({"name": "Maze"}, {"name": "Maze", "description": "", "nmae": "Maze"}):
        with pytest.raises(ValidationError):
            EnvironmentMetadata(**wrong)
