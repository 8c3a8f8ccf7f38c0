"""Values that JSON can represent, and the errors of others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.sandboxed.messages import MAX_DEPTH, check_json, find_foreign

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_check_json_accepts_what_json_can_represent(value):
    check_json(value, "value")
    json.dumps(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({1}, "truth is {1} (set)"),
        (b"no", "truth is b'no' (bytes)"),
        ([0, {"a": [object]}], "truth[1]['a'][0] is <class 'object'> (type)"),
        ({"a": {2: 3}}, "truth['a'] has the key 2 (int)"),
        ((1j,), "truth[0] is 1j (complex)"),
    ],
    ids=["set", "bytes", "inside", "key", "complex"],
)
def test_check_json_names_what_json_cannot_represent(value, expected):
    with pytest.raises(InvalidArgumentError) as caught:
        check_json(value, "truth")
    assert str(caught.value).startswith(f"{expected}; a sandbox takes what JSON can represent")


def test_check_json_refuses_a_value_that_contains_itself():
    loop = []
    loop.append({"again": loop})
    assert find_foreign(loop) == f" is nested more than {MAX_DEPTH} deep"


def test_find_foreign_accepts_the_maximum_depth():
    value = 0
    for _ in range(MAX_DEPTH):
        value = [value]
    assert find_foreign(value) is None
