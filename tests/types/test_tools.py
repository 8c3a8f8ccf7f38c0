"""`tool_schema`: an action class as a tool."""

from typing import Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from guerdon import Action
from guerdon.types import tool_schema


class Place(BaseModel):
    row: int
    title: str = ""


class MoveHTTP2Piece(Action):
    """Moves a piece.

    And more, which isn't part of the schema.
    """

    piece: Literal["rook", "king"]
    to: Place = Field(description="Where to.")
    title: str = "none"


class Undocumented(Action):
    text: str


def test_tool_schema_describes_the_class_in_the_format_of_openai():
    tool = tool_schema(MoveHTTP2Piece)
    function = tool["function"]
    assert (tool["type"], sorted(function)) == ("function", ["description", "name", "parameters"])
    assert (function["name"], function["description"]) == ("move_http2_piece", "Moves a piece.")
    parameters = function["parameters"]
    assert list(parameters["properties"]) == ["piece", "to", "title"]
    assert parameters["required"] == ["piece", "to"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["to"]["description"] == "Where to."
    assert "title" in parameters["$defs"]["Place"]["properties"]
    assert "title" not in parameters


@pytest.mark.parametrize("valid", [True, False])
def test_tool_schema_accepts_the_arguments_of_an_action_and_no_others(valid):
    schema = tool_schema(MoveHTTP2Piece)["function"]["parameters"]
    arguments = {"piece": "rook", "to": {"row": 1}} | ({} if valid else {"metadata": {}})
    assert jsonschema.Draft202012Validator(schema).is_valid(arguments) is valid
    if valid:
        assert MoveHTTP2Piece(**arguments).to.row == 1


def test_tool_schema_name_and_description_can_be_given():
    function = tool_schema(Undocumented, name="say", description="Says it.")["function"]
    assert (function["name"], function["description"]) == ("say", "Says it.")
    function = tool_schema(Undocumented)["function"]
    assert (function["name"], function["description"]) == ("undocumented", "")
