import contextlib
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.sandbox.testing.codec import Decoder, Encoder
from guerdon.sandbox.testing.plain import COMPOSED, EMPTY, CodecError


def refuse(value):
    if value == ["global", "os"]:
        raise CodecError("refused")
    raise AssertionError(f"{value!r} was not to be exported")


def through(value):
    """Encode a value and decode it again."""
    encoder = Encoder(refuse)
    reference = encoder.value(value)
    reference, nodes = json.loads(json.dumps([reference, encoder.nodes]))
    return Decoder(nodes, refuse).value(reference)


HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary(max_size=9)
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=8,
)
VALUES = st.recursive(
    HASHABLE | st.binary(max_size=9).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_decoder_returns_what_the_encoder_received(value):
    back = through(value)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict, list, tuple))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(categories=("Cs",)), max_size=3), max_size=3))
def test_decoder_keeps_lone_surrogates(texts):
    assert through(texts) == texts


def test_decoder_returns_integers_of_any_size():
    for number in (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**5000):
        assert through([number, {number}]) == [number, {number}]


def test_decoder_returns_nan_infinities_and_minus_zero():
    back = through([math.nan, -0.0, math.inf, complex(0, math.inf)])
    assert math.isnan(back[0])
    assert str(back[1:]) == "[-0.0, inf, infj]"


def test_decoder_keeps_shared_references():
    inner = [1]
    one, two, three = through([inner, inner, [1]])
    assert one is two
    assert one is not three


def test_decoder_keeps_the_order_of_keys():
    assert list(through({3: 1, 1: 2, 2: 3})) == [3, 1, 2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["a", "name"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
TAGS = [
    *EMPTY,
    *COMPOSED,
    "object",
    "record",
    "member",
    "int",
    "str",
    "bytes",
    "name",
    "error",
    "x",
]
REFERENCES = st.lists(st.integers(-3, 6).map(lambda n: [n]) | JSON, max_size=3)
NODES = st.lists(
    st.tuples(st.sampled_from(TAGS), REFERENCES | JSON, REFERENCES | JSON).map(list)
    | st.tuples(st.sampled_from(TAGS), REFERENCES | JSON).map(list)
    | JSON,
    max_size=6,
)


@settings(max_examples=250, deadline=None)
@given(NODES, JSON)
def test_decoder_returns_a_value_or_raises_codec_error(nodes, reference):
    with contextlib.suppress(CodecError):
        Decoder(nodes, refuse, [1]).value(reference)


@pytest.mark.parametrize(
    "nodes",
    [
        [["tuple", [[0]]]],
        [["tuple", [[1]]], ["tuple", [[0]]]],
        [["set", [[1]]], ["list", []]],
        [["dict", [[1]], [1]], ["dict", [], []]],
        [["dict", [1], []]],
        [["name", "eval"]],
        [["name", "__import__"]],
        [["error", "int", []]],
        [["name", "getattr"]],
        [["name", "type"]],
        [["object", [], [], "X"]],
        [["record", "X", []]],
        [["member", "X", "A"]],
        [["namedtuple", ["X", [1], 1]], ["tuple", ["__eq__"]]],
        [["namedtuple", ["X", [1], 1]], ["tuple", ["a b"]]],
        [["namedtuple", ["X", [1]]], ["tuple", ["a"]]],
        [["namedtuple", ["X", [1], 1]], ["list", ["a"]]],
        [["SimpleNamespace", [[1], 1]], ["tuple", [1]]],
        [["PosixPath", [["x"]]]],
        [["Fraction", ["1e9"]]],
        [["Decimal", ["x"]]],
        [["date", [[1]]], ["list", []]],
        [["range", [[1]]], ["list", []]],
        [["global", "os"]],
        [["mappingproxy", [1]]],
        [["error", "SystemExit", []]],
        [["complex", ["1", 2]]],
        [["int", "zz"]],
        [["list", [[7]]]],
        [["list", [[-2]]]],
        [["list", [{"a": 1}]]],
        [["list", [[0, 0]]]],
        [["list", 3]],
        [["list"]],
        ["list"],
        None,
    ],
    ids=repr,
)
def test_decoder_rejects_an_invalid_table(nodes):
    with pytest.raises(CodecError):
        Decoder(nodes, refuse, [1])


def test_decoder_rejects_deeply_nested_tuples_before_it_hashes_them():
    nodes = [["tuple", [[number + 2]]] for number in range(90_000)] + [["tuple", []]]
    with pytest.raises(CodecError, match="nested too deeply"):
        Decoder([["set", [[1]]], *nodes], refuse)
