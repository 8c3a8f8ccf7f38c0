"""How toxic a text is."""

import copy
import pickle

import pytest

from guerdon.errors import InvalidArgumentError, MissingInputError, StateError
from guerdon.rubrics.checks import ToxicityRubric


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("0.5\tsilly\n0.4\tdull\n0.9\t/go away+/\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "text",
    ["You are an idiot.", "you 1D10T", "what a m0r0n", "You stuuuupid thing", "k1ll y0urself",
     "I will never, ever... no: I’m going to strangle you", "You're such a complete loser",
     "shut up and get lost", "Nobody likes you."],
)  # fmt: skip
def test_toxicity_the_packaged_list_finds_insults_threats_and_harassment(text):
    assert ToxicityRubric()(text, None) >= 0.5


@pytest.mark.parametrize(
    "text",
    ["Thank you for your patience.", "", "The assassin in the classic novel drops 455 hints.",
     "Kill the process with kill -9 and take out the trash.", "Never drink bleach.",
     "If you get lost, call me.", "I will not kill you.", "She looked drop dead gorgeous.",
     "You take the trash out; you are taking trash and scum off the pond.",
     "Scunthorpe, Penistone, Dickens, cocktail, bass, button, hello"],
)  # fmt: skip
def test_toxicity_the_packaged_list_leaves_plain_talk_alone(text):
    assert ToxicityRubric()(text, None) == 0.0


def test_toxicity_the_level_joins_distinct_entries(words):
    rubric = ToxicityRubric(0.0, words=words)
    assert rubric("silly", None) == 0.5
    assert rubric("silly silly SILLY", None) == 0.5
    assert rubric("silly and dull", None) == pytest.approx(0.7)
    assert rubric("dull, go awayyy", None) == pytest.approx(0.94)


def test_toxicity_the_threshold_counts_at_equality(words):
    assert ToxicityRubric(0.5, words=words)("silly", None) == 0.5
    score = ToxicityRubric(0.51, words=words).score("silly", None)
    assert (score.value, score.reason) == (0.0, "level 0.500 is under 0.51: 'silly'")


def test_toxicity_explains_the_entries(words):
    assert (
        ToxicityRubric(words=words).score("dull, silly", None).reason
        == "level 0.700: 'dull', 'silly'"
    )


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), True, "0.5"])
def test_toxicity_a_threshold_out_of_range_is_rejected(threshold):
    with pytest.raises(InvalidArgumentError, match=r"`threshold` must be in \[0, 1\]"):
        ToxicityRubric(threshold)


def test_toxicity_a_broken_list_is_rejected_when_the_rubric_is_made(tmp_path):
    (tmp_path / "words.txt").write_text("0.5\tfine\nbroken\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="line 2"):
        ToxicityRubric(words=tmp_path / "words.txt")


def test_toxicity_the_state_reads_the_list_again(words):
    one, other = ToxicityRubric(0.2, words=words), ToxicityRubric()
    other.load_state_dict(one.state_dict())
    assert other("dull", None) == pytest.approx(0.4)
    with pytest.raises(StateError):
        other.load_state_dict({**one.state_dict(), "words": words + ".none"})
    assert other("dull", None) == pytest.approx(0.4)


def test_toxicity_fingerprint_depends_on_the_entries(words):
    before = ToxicityRubric(words=words).fingerprint()
    assert ToxicityRubric(words=words).fingerprint() == before
    with open(words, "a", encoding="utf-8") as file:
        file.write("0.1\tmore\n")
    assert ToxicityRubric(words=words).fingerprint() != before


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda rubric: pickle.loads(pickle.dumps(rubric))]
)
def test_toxicity_survives_copying(again):
    assert again(ToxicityRubric())("you idiot", None) >= 0.5


def test_toxicity_raises_where_there_is_no_text():
    with pytest.raises(MissingInputError):
        ToxicityRubric()(None, None)
