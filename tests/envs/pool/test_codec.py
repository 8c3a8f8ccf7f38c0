"""`Codec`: what a pool and its workers send each other arrives unchanged."""

import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, PrivateAttr

from guerdon import Observation, Rubric, Sequential
from guerdon.envs.pool.codec import Codec
from guerdon.errors import (
    EnvError,
    EpisodeError,
    InvalidActionError,
    InvalidObservationError,
    MissingExtraError,
)
from guerdon.rubrics.failure import describe_failure
from guerdon.types import GenericObservation


class Seen(Observation):
    model_config = ConfigDict(extra="allow")

    value: float = 0.0
    _note: str = PrivateAttr(default="")


@pytest.fixture
def ends():
    return Codec(), Codec()


def sent(ends, value=None, error=None):
    """A result as the other end reads it."""
    here, there = ends
    packed = here.encode(here.pack_result(value, error, None))
    slot, value, error, _ = there.read_result(3, packed)
    assert slot == 3
    return value, error


@given(
    value=st.floats(allow_nan=False),
    metadata=st.dictionaries(st.text(), st.one_of(st.none(), st.integers(), st.text())),
    extra=st.dictionaries(st.sampled_from(["a", "b"]), st.integers()),
    note=st.text(),
)
def test_codec_models_arrive_unchanged(value, metadata, extra, note):
    ends = Codec(), Codec()
    for seen in (
        Seen(value=value, metadata=metadata, **extra),
        Seen(),
        GenericObservation(**extra),
    ):
        if isinstance(seen, Seen):
            seen._note = note
        arrived, _ = sent(ends, seen)
        assert (type(arrived), arrived) == (type(seen), seen)
        assert arrived.model_fields_set == seen.model_fields_set
        assert (arrived.model_extra, arrived.__pydantic_private__) == (
            seen.model_extra,
            seen.__pydantic_private__,
        )
        arrived.done = True  # it is still validated
        with pytest.raises(ValueError, match="done"):
            arrived.done = "perhaps"


def test_codec_a_class_without_an_import_path_is_sent_once_and_stays_the_same_class(ends):
    class Mine(Observation):
        value: float = 0.0

    here, there = ends
    sizes = []
    for number in range(3):
        data = here.encode(here.pack_result(Mine(value=number), None, None))
        sizes.append(len(data))
        _, arrived, _, _ = there.read_result(0, data)
        assert arrived == Mine(value=number)
        assert type(arrived) is Mine  # this process has both ends
    assert sizes[0] > 500
    assert sizes[1] == sizes[2] < 200
    first, second = (there.decode(here.encode({"kind": Mine, "each": [Mine()]})) for _ in range(2))
    assert first == second == {"kind": Mine, "each": [Mine()]}


def test_codec_without_cloudpickle_names_the_extra(ends, monkeypatch):
    class Mine(Observation):
        pass

    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(MissingExtraError, match=r"guerdon\[processes\]"):
        ends[0].encode(Mine())
    assert ends[1].decode(ends[0].encode([1])) == [1]


class Strange(Exception):
    def __init__(self, code, place):
        super().__init__(f"{code}: at\n{place}")


class Down(Rubric):
    def forward(self, action, observation):
        raise OSError("the judge is down")


def raised_in_a_tree():
    try:
        Sequential(Down())(None, None)
    except OSError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no: such"),
        ValueError(),
        EpisodeError("reset first"),
        Strange(3, "sea"),
        raised_in_a_tree(),
        KeyError("a"),
        OSError(2, "no such file"),
    ],
    ids=str,
)
def test_codec_errors_are_described_by_the_same_text(ends, error):
    _, arrived = sent(ends, error=error)
    assert isinstance(arrived, Exception)
    assert describe_failure(arrived) == describe_failure(error)
    assert type(error).__name__ in str(arrived.__cause__)


def test_codec_a_result_that_cannot_be_read_is_an_error_of_its_slot(ends):
    slot, value, error, _ = ends[1].read_result(
        7, pickle.dumps((("no:name", {}, set(), None, None), None, None))
    )
    assert (slot, value) == (7, None)
    assert isinstance(error, InvalidObservationError)


def test_codec_a_result_that_cannot_be_sent_is_returned_with_its_error(ends):
    here, there = ends
    data, unsent = here.encode_result(Seen(metadata={"items": iter(())}), None, None)
    assert unsent is None
    data, unsent = here.encode_result(Seen(metadata={"items": (each for each in "")}), None, None)
    assert isinstance(unsent, InvalidObservationError)
    _, value, error, _ = there.read_result(3, data)
    assert (value, type(error), str(error)) == (None, InvalidObservationError, str(unsent))


@pytest.mark.parametrize(("method", "kind"), [("step", InvalidActionError), ("reset", EnvError)])
def test_codec_arguments_that_cannot_be_read_are_an_error_of_their_slot(ends, method, kind):
    data, unsent = ends[0].encode_calls([(0, method, (Strange(3, "sea"),)), (1, method, (2,))])
    calls, failed = ends[1].decode_calls(data)
    assert (unsent, calls) == ([], [(1, method, (2,))])
    ((slot, _, error, _),) = failed
    assert (slot, type(error)) == (0, kind)
    assert str(error).startswith("the arguments can't be read in the worker: TypeError: ")
