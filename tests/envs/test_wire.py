"""What is written on the wire, by both codecs, and what is refused."""

import contextlib
import json
import sys
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import model_serializer

from guerdon import Observation
from guerdon.envs.wire import (
    ARRAY_TYPES,
    JSON,
    MAX_LISTS,
    MAX_VALUES,
    MSGPACK,
    UNSENDABLE,
    JsonCodec,
    MsgpackCodec,
    NotFiniteError,
    check_finite,
    codecs,
    frames,
    model_json,
    read_json,
)
from guerdon.types import ArrayField, GenericObservation

BOTH = [JsonCodec(), MsgpackCodec()]

texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
any_array = st.sampled_from(ARRAY_TYPES).flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, min_side=0, max_dims=4))
)


class Screen(Observation):
    frame: Annotated[np.ndarray, ArrayField()]
    beside: object = None


def names(codec):
    return type(codec).__name__


@pytest.mark.parametrize("codec", BOTH, ids=names)
@given(st.lists(st.tuples(st.integers(0, 2**53 - 1), values), max_size=4))
def test_codec_round_trips(codec, calls):
    encoded = [codec.encode(number, "step", data) for number, data in calls]
    decoded = codec.decode(codec.frame(encoded))
    assert decoded == [[number, "step", data] for number, data in calls]


@given(any_array, values)
def test_msgpack_codec_carries_arrays_as_bytes(array, beside):
    codec = MsgpackCodec()
    for data in (
        {"frame": array, "beside": beside},
        Screen(frame=array, beside=beside, metadata={"frame": array}),
    ):
        [[_, _, sent]] = codec.decode(codec.frame([codec.encode(0, "observation", data)]))
        frame = sent["frame"]
        assert (frame.dtype, frame.shape) == (array.dtype, array.shape)
        assert frame.tobytes() == np.ascontiguousarray(array).tobytes()
        assert sent["beside"] == beside
        frame[...] = 1  # it can be written to


@pytest.mark.parametrize("part", [np.s_[::2], np.s_[:, ::-1], np.s_[1, 2], np.s_[:0]])
@pytest.mark.parametrize("dtype", ["uint8", ">f4", "bool"])
def test_msgpack_codec_carries_parts_of_arrays_in_any_byte_order(part, dtype):
    array = np.asarray(np.arange(12).reshape(3, 4).astype(dtype)[part])
    codec = MsgpackCodec()
    [[_, _, sent]] = codec.decode(codec.frame([codec.encode(0, "step", {"a": array})]))
    assert np.array_equal(sent["a"], array)
    assert sent["a"].dtype == array.dtype.newbyteorder("<")


@pytest.mark.parametrize("codec", BOTH, ids=names)
def test_codec_gives_the_class_of_an_observation_its_array(codec):
    frame = np.arange(6, dtype="float32").reshape(2, 3)
    encoded = codec.encode(0, "observation", Screen(frame=frame, reward=0.5))
    [[_, _, sent]] = codec.decode(codec.frame([encoded]))
    screen = Screen.model_validate(sent)
    assert (screen.reward, screen.frame.tolist()) == (0.5, frame.tolist())
    generic = GenericObservation.model_validate(sent).frame
    assert isinstance(generic, list if isinstance(codec, JsonCodec) else np.ndarray)


class Sorted(Screen):
    other: Annotated[np.ndarray, ArrayField()]

    @model_serializer(mode="wrap")
    def in_another_order(self, handler):
        fields = handler(self)
        return {"other": fields["other"], "again": fields["other"], "frame": fields["frame"]}


@pytest.mark.parametrize("codec", BOTH, ids=names)
def test_codec_keeps_the_arrays_of_fields_whose_order_a_serializer_changes(codec):
    model = Sorted(frame=[1], other=[2], metadata={"dropped": np.ones(3)})
    [[_, _, sent]] = codec.decode(codec.frame([codec.encode(0, "observation", model)]))
    assert {name: np.asarray(each).tolist() for name, each in sent.items()} == {
        "frame": [1],
        "other": [2],
        "again": [2],
    }


@pytest.mark.parametrize("text", ["guerdon-array-5f1c9a52e0d84b7f", "0" * 40])
def test_msgpack_codec_carries_any_text_beside_an_array(text):
    codec = MsgpackCodec()
    screen = Screen(frame=[1], beside=[text, f"\u00be{text}"])
    [[_, _, sent]] = codec.decode(codec.frame([codec.encode(0, "observation", screen)]))
    assert (sent["frame"].tolist(), sent["beside"]) == ([1], screen.beside)


@pytest.mark.parametrize("codec", BOTH, ids=names)
@pytest.mark.parametrize("scalar", [np.bool_(True), np.float32(0.5), np.int64(3)], ids=repr)
def test_codec_carries_scalars_of_numpy_as_numbers(codec, scalar):
    screen = Screen(frame=[1], metadata={"score": scalar})
    [[_, _, sent]] = codec.decode(codec.frame([codec.encode(0, "observation", screen)]))
    score = sent["metadata"]["score"]
    assert (type(score), score) == (type(scalar.item()), scalar.item())


@pytest.mark.parametrize("codec", BOTH, ids=names)
@pytest.mark.parametrize(
    "data",
    [
        {"x": [1.0, float("nan")]},
        {"x": float("-inf")},
        GenericObservation(x={"y": float("inf")}),
        {"x": object()},
        {"x": np.array([None])},
        {"x": np.array(["text"])},
        {"x": np.longdouble(1)},
        {"x": "\ud800"},
    ],
    ids=range(8),
)
def test_codec_refuses_what_json_cant_represent(codec, data):
    with pytest.raises(UNSENDABLE):
        codec.encode(0, "step", data)


def test_msgpack_codec_refuses_nan_beside_an_array_and_not_in_it():
    codec = MsgpackCodec()
    array = np.array([np.nan, np.inf])
    [[_, _, sent]] = codec.decode(codec.frame([codec.encode(0, "x", {"a": array})]))
    assert np.array_equal(sent["a"], array, equal_nan=True)
    for number in (float("nan"), np.float32("nan")):
        with pytest.raises(NotFiniteError, match=r"nan at b\[0\]"):
            codec.encode(0, "x", {"a": array, "b": [number]})


def test_model_json_refuses_nan_in_an_array():
    assert b"[[1.0]]" in model_json(Screen(frame=[[1.0]]))
    with pytest.raises(UNSENDABLE, match=r"nan at \[0\]\[1\]"):
        model_json(Screen(frame=[[1.0, float("nan")]]))


def test_codecs_without_msgspec_are_json_alone(monkeypatch):
    assert list(codecs()) == [MSGPACK, JSON]
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert list(codecs()) == [JSON]


def packed(*parts, code=1):
    from msgspec import msgpack

    return msgpack.encode([[0, "step", msgpack.Ext(code, msgpack.encode(parts))]])


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (packed("|u1", [3], b"ab"), r"2 bytes for an array of \|u1 and shape \[3\]"),
        (packed("<f4", [1], b"abc"), "3 bytes for an array"),
        (packed("|u1", [-1, -2], b"ab"), "2 bytes for an array"),
        (packed("|u1", [2**62, 4], b""), "0 bytes for an array"),
        (packed("|O8", [1], b"8 bytes."), "allowed are"),
        (packed(">f4", [1], b"four"), "allowed are"),
        (packed("<U1", [1], b"four"), "allowed are"),
        (packed("|u1", [1.5], b"a"), "Expected `int`"),
        (packed("|u1", [1], "a"), "Expected `bytes`"),
        (packed("|u1", [1]), "length 3"),
        (packed("|u1", [1], b"a", b"a"), "length 3"),
        (packed("|u1", [0] * 100, b""), "dimension"),
        (packed("|u1", [1], b"a", code=2), "unknown extension type 2"),
        (b"\xdd\xff\xff\xff\xff", "truncated"),
        (b"\xc6\xff\xff\xff\xff", "truncated"),
        (b"\x91" * 100_000, "nested too deeply"),
        (b"\x91\xcb\x7f\xf0\0\0\0\0\0\0", "inf at"),
        (b"\x91\xca\xff\xc0\0\0", "nan at"),
        (b"\x91" * 800 + b"\xcb\x7f\xf8\0\0\0\0\0\0", "nested too deeply|nan at"),
        (b"\xc1", "malformed"),
        (b"", "truncated"),
    ],
    ids=range(21),
)
def test_msgpack_codec_refuses_an_invalid_frame(frame, problem):
    with pytest.raises(ValueError, match=problem):
        MsgpackCodec().decode(frame)


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ("", "EOF"),
        ("[", "EOF"),
        ("[NaN]", "expected value"),
        ("[" * 100_000, "recursion"),
        ('["\\ud800"]', "hex escape"),
        ("[1e999]", r"inf at \[0\]"),
        ('[{"a": -1E+400}]', r"-inf at \[0\]\.a"),
        (f"[{10**400}.5]", r"inf at \[0\]"),
    ],
    ids=range(8),
)
def test_json_codec_refuses_an_invalid_frame(frame, problem):
    for sent in (frame, frame.encode()):
        with pytest.raises(ValueError, match=problem):
            JsonCodec().decode(sent)


@pytest.mark.parametrize(
    ("frame", "content"),
    [
        ("[1e308]", [1e308]),
        ("[1e-999]", [0.0]),
        (f"[{10**400}]", [10**400]),
        ('["1e999"]', ["1e999"]),
        ('{"1e999": 1.5}', {"1e999": 1.5}),
    ],
    ids=range(5),
)
def test_json_codec_decodes_texts_and_numbers_that_resemble_infinity(frame, content):
    assert JsonCodec().decode(frame) == JsonCodec().decode(frame.encode()) == content


@given(st.integers(150, 300), st.booleans())
def test_json_codec_encodes_what_can_be_decoded_in_a_frame_with_others(depth, has_names):
    codec, data = JsonCodec(), 0
    for _ in range(depth):
        data = {"a": data} if has_names else [data]
    for each in (data, GenericObservation(x=data)):
        try:
            encoded = codec.encode(1, "step", each)
        except UNSENDABLE:
            assert depth > 180
        else:
            frame = codec.frame([codec.encode(0, "step", {}), encoded])
            assert codec.decode(frame, is_trusted=True) == codec.decode(frame)


def test_check_finite_names_few_floats_of_many_and_bounds_their_paths():
    nan = float("nan")
    with pytest.raises(NotFiniteError) as caught:
        check_finite({"a": [0.0, nan], "b" * 10_000: [nan] * 10_000})
    text = str(caught.value)
    assert text.startswith("nan at a[1], nan at bbb")
    assert text.count("nan at") == 5
    assert text.endswith("which JSON can't represent; use a finite number or None")
    assert len(text) < 1500


@given(st.binary(max_size=60), st.integers(0, 40), st.binary(max_size=3))
def test_msgpack_codec_decodes_or_refuses_any_bytes(noise, cut, junk):
    codec = MsgpackCodec()
    call = codec.frame([codec.encode(1, "step", {"a": np.arange(3), "b": 0.5})])
    for frame in (noise, call[:cut] + junk + call[cut + 1 :]):
        with contextlib.suppress(ValueError):
            codec.decode(frame)


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 60), st.integers(1, 5))
def test_frames_have_all_calls_in_order_and_at_most_so_many_bytes_and_calls(sizes, limit, most):
    codec = JsonCodec()
    encoded = [codec.encode(number, "step", "x" * size) for number, size in enumerate(sizes)]
    sent = list(frames(codec, encoded, limit, max_calls=most))
    assert [call[0] for frame in sent for call in codec.decode(frame)] == list(range(len(sizes)))
    assert all(len(frame) <= limit or len(codec.decode(frame)) == 1 for frame in sent)
    assert all(len(codec.decode(frame)) <= most for frame in sent)


# Too many values ---------------------------------------------------------------------------------


def listed(item, count):
    """A frame of MessagePack: a list of an encoded value, so many times."""
    return b"\xdd" + count.to_bytes(4, "big") + item * count


NUMBERED = b"".join(b"\xce" + number.to_bytes(4, "big") + b"\xc0" for number in range(MAX_VALUES))


@pytest.mark.parametrize(
    "frame",
    [
        listed(b"\x90", 15_000_000),
        listed(b"\x80", MAX_VALUES),
        listed(b"\xdc\x00\x00", MAX_VALUES),
        listed(b"\x91\x90", MAX_VALUES),
        b"\x91" * 15_000_000,
        listed(b"\x01", MAX_VALUES + 1),
        listed(b"\xcb" + bytes(8), MAX_VALUES + 1),
        listed(b"\xa3abc", MAX_VALUES + 1),
        listed(b"\xd9\x01a", MAX_VALUES + 1),
        listed(b"\xd4\x01a", MAX_VALUES + 1),
        b"\xdf" + MAX_VALUES.to_bytes(4, "big") + NUMBERED,
    ],
    ids=["lists", "objects", "long lists", "nested", "deep", "integers", "floats", "texts",
         "long texts", "extensions", "keys"],
)  # fmt: skip
def test_msgpack_codec_refuses_too_many_values_before_it_makes_them(frame):
    with pytest.raises(ValueError, match="it has too many values; at most 524,288"):
        MsgpackCodec().decode(frame)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[]," * 5_000_000 + "1]",
        "[" + "{}," * MAX_VALUES + "1]",
        "[" * 15_000_000,
        "[" + "1," * MAX_VALUES + "1,1]",
        "[" + '"",' * MAX_VALUES + "1,1]",
        "[" + '"\\\\",' * MAX_VALUES + "1,1]",
        "{" + ",".join(f'"{number}":1' for number in range(MAX_LISTS + 1)) + "}",
    ],
    ids=["lists", "objects", "deep", "numbers", "texts", "backslashes", "keys"],
)
def test_read_json_refuses_too_many_values_before_it_makes_them(text):
    for given_as in (text, text.encode()):
        with pytest.raises(ValueError, match="it has too many values; at most 524,288"):
            read_json(given_as)


@pytest.mark.parametrize(
    "value",
    [
        "a, [b]: {c}, " * 600_000,
        json.dumps({"rows": [{"a": [1, 2], "b": "c"}] * 100_000}),
        "\\" * 1_000_000 + '"' * 1_000_000,
        ["a,b"] * 300_000,
        [[0.5] * 100] * 4000,
        list(range(400_000)),
    ],
    ids=["punctuation", "JSON in a text", "escapes", "texts", "rows", "integers"],
)
def test_codecs_read_what_is_large_but_has_few_values(value):
    assert read_json(json.dumps(value)) == value
    codec = MsgpackCodec()
    assert codec.decode(codec.frame([codec.encode(1, "step", value)])) == [[1, "step", value]]


def test_msgpack_codec_reads_an_array_of_any_bytes():
    array = np.random.default_rng(0).integers(0, 255, 10_000_000, dtype="u1")
    codec = MsgpackCodec()
    [[_, _, data]] = codec.decode(codec.frame([codec.encode(1, "step", {"array": array})]))
    assert np.array_equal(data["array"], array)


@pytest.mark.parametrize(
    "text", ["1e400", "[1E+400]", '{"a": 1e999 }', "1" + "0" * 300 + "e10", "1" * 308 + "e9",
             "1" * 310 + ".0"],
)  # fmt: skip
def test_read_json_refuses_a_float_that_is_infinite(text):
    with pytest.raises(NotFiniteError, match="inf at"):
        read_json(text)
