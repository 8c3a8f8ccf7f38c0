"""guerdon schema: the JSON Schema of a reward's file."""

import json

import jsonschema
import pytest

pytestmark = pytest.mark.edge  # real processes


def test_schema_prints_only_the_schema(guerdon):
    done = guerdon("schema")
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    data = {"schema_version": "1.0", "per_turn": [{"name": "a", "rubric": "PythonCompiles"}]}
    jsonschema.validate(data, schema)
    data["per_turn"][0]["wieght"] = 1
    assert not jsonschema.Draft202012Validator(schema).is_valid(data)
