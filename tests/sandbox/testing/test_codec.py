import contextlib
import json
import math
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.sandbox.testing.codec import Decoder, Encoder
from guerdon.sandbox.testing.containers import EMPTY, Containers
from guerdon.sandbox.testing.link import Link
from guerdon.sandbox.testing.plain import COMPOSED, CodecError


def message_of(nodes):
    return {"nodes": nodes, "kinds": [], "derived": []}


class Side(Link):
    """One of two sides that exchange plain values."""

    def __init__(self, first):
        super().__init__(-1)
        self.common = Containers(first)

    def export(self, encoder, value):
        raise AssertionError(f"{value!r} isn't plain")

    def accept(self, decoder, node):
        raise CodecError("refused")

    def sent(self, *values):
        """Return the message with some values, and with what has changed."""
        encoder = Encoder(self)
        encoder.changed(self.common.changed())
        references = [encoder.value(value) for value in values]
        encoder.sent()
        return json.loads(json.dumps([references, message_of(encoder.nodes)]))

    def received(self, message):
        """Return the values of a message."""
        references, rest = message
        return Decoder(self, rest).values(references)


def through(value):
    """Encode a value and decode it again."""
    [back] = Side(1).received(Side(2).sent(value))
    return back


def decoder(nodes):
    return Decoder(Side(1), message_of(nodes))


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


@settings(max_examples=80)
@given(VALUES)
def test_decoder_returns_what_the_encoder_received(value):
    back = through(value)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict, list, tuple))


@settings(max_examples=100)
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
    "ndarray",
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


# Of an address that a bool is a part of.
@pytest.mark.filterwarnings("ignore:__int__ returned non-int:DeprecationWarning")
@settings(max_examples=250)
@given(NODES, JSON)
def test_decoder_returns_a_value_or_raises_codec_error(nodes, reference):
    with contextlib.suppress(CodecError):
        decoder(nodes).value(reference)


@pytest.mark.parametrize(
    "nodes",
    [
        [["tuple", [[0]]]],
        [["tuple", [[1]]], ["tuple", [[0]]]],
        [["set", 0, [[1]]], ["list", 2, []]],
        [["dict", 0, [[1]], [1]], ["dict", 2, [], []]],
        [["dict", 0, [1], []]],
        [["name", "eval"]],
        [["name", "__import__"]],
        [["error", "int", []]],
        [["name", "getattr"]],
        [["name", "type"]],
        [["object", 0, [], [], "X"]],
        [["record", "X", []]],
        [["member", "X", "A"]],
        [["namedtuple", ["X", [1], 1]], ["tuple", ["__eq__"]]],
        [["namedtuple", ["X", [1], 1]], ["tuple", ["a b"]]],
        [["namedtuple", ["X", [1]]], ["tuple", ["a"]]],
        [["namedtuple", ["X", [1], 1]], ["list", 0, ["a"]]],
        [["SimpleNamespace", [[1], 1]], ["tuple", [1]]],
        [["PosixPath", [["x"]]]],
        [["Fraction", ["1e9"]]],
        [["Decimal", ["x"]]],
        [["date", [[1]]], ["list", 0, []]],
        [["range", [[1]]], ["list", 0, []]],
        [["global", "os"]],
        [["mappingproxy", [1]]],
        [["error", "SystemExit", []]],
        [["complex", ["1", 2]]],
        [["int", "zz"]],
        [["list", 0, [[7]]]],
        [["list", 0, [[-2]]]],
        [["list", 0, [{"a": 1}]]],
        [["list", 0, [[0, 0]]]],
        [["list", 0, 3]],
        [["list", 0]],
        [["list", []]],
        [["list", 1, []]],  # a number of this side
        [["list", -2, []]],
        [["ndarray", 0, "00", "|O8", [1]]],
        [["ndarray", 0, "00", "|u1", [1, 1 << 40]]],
        [["ndarray", 0, "00", "|u1", [2]]],
        [["list"]],
        ["list"],
        None,
    ],
    ids=repr,
)
def test_decoder_rejects_an_invalid_table(nodes):
    with pytest.raises(CodecError):
        decoder(nodes)


PLAIN = st.recursive(
    st.integers() | st.text(max_size=2) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(0, 2), inner),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.data())
def test_containers_stay_the_same_on_both_sides(data):
    """Random changes on either side, each followed by a message, leave both with equal contents."""
    sides = one, other = Side(1), Side(2)
    mine = [[], {}, [[]], bytearray(b"a")]
    theirs = other.received(one.sent(*mine))
    for _ in range(data.draw(st.integers(1, 8))):
        sender = data.draw(st.sampled_from([0, 1]))
        values = (mine, theirs)[sender]
        kept = data.draw(st.sampled_from([0, 1, 2]))
        new = data.draw(PLAIN)
        if kept == 1:
            values[1][data.draw(st.integers(0, 2))] = new
        else:
            values[kept].append(data.draw(st.sampled_from([new, values[0], values[1]])))
        values[3][:] = data.draw(st.binary(max_size=3))
        sides[1 - sender].received(sides[sender].sent())
        assert repr(mine) == repr(theirs)  # which may contain themselves
        again = sides[1 - sender].received(sides[sender].sent(*values))
        assert all(map(operator.is_, again, (mine, theirs)[1 - sender]))


def test_containers_gone_forgets_what_only_the_other_side_has():
    one, other = Side(1), Side(2)
    kept, lost = [1], [[2]]
    theirs = other.received(one.sent(kept, lost))
    del lost
    gone = one.common.gone()
    assert len(gone) == 2  # the list and the one in it
    other.common.forget(gone)
    assert other.common.gone() == []  # it refers to all of them
    theirs[0].append(5)
    one.received(other.sent())
    assert kept == [1, 5]


def test_containers_gone_keeps_what_has_changed_until_it_is_sent():
    one = Side(1)
    kept = [1]
    one.sent(kept)
    kept.append(2)
    del kept
    assert one.common.gone() == []
    one.sent()
    assert len(one.common.gone()) == 1


def test_decoder_rejects_deeply_nested_tuples_before_it_hashes_them():
    nodes = [["tuple", [[number + 2]]] for number in range(90_000)] + [["tuple", []]]
    with pytest.raises(CodecError, match="nested too deeply"):
        decoder([["set", 0, [[1]]], *nodes])
