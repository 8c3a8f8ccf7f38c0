"""Greedy groups of similar texts: those of ``difflib``, found without comparing most pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from guerdon.errors import CreditError

__all__ = ["similar_groups"]

Ints: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Part: TypeAlias = tuple[int, int, int, int]  # from where to where of a, from where to where of b
Block: TypeAlias = tuple[int, int, int]  # where it begins in a, where in b, its length

LETTERS, PAIRS = 128, 512  # into how many buckets letters, and pairs of letters, are counted
GRAM = 8  # bytes that are compared at once
CHUNK = 64  # after how many letters the subsequence is looked at
MOST_BITS = 1 << 28  # letters by places, from which on the subsequence is not looked at
SHORT = 48  # letters up to which a part has no grams listed
MANY = 4  # grams in common, for each letter, from which on they are too many to list


def similar_groups(states: Sequence[str], threshold: float) -> Ints:
    """Group texts that are similar to the first of their group.

    Each text, in the order given, joins the first group (in the order in which they were opened)
    whose first text, its template, is similar; where there is none, it opens a group.
    Similarity is Ratcliff and Obershelp's, 2·M / (length of both): M is the length of the longest
    common block (of several the first in the template, then in the text) and, again, of those to
    the left and to the right of it. The groups are those of

        ``difflib.SequenceMatcher(None, template, text, autojunk=False).ratio() >= threshold``

    to the last bit. The template comes first, which matters: the ratio isn't symmetric. difflib's
    default junk heuristic is off, as it would ignore each letter that makes up 1 % of a long text.

    Example:
        >>> similar_groups(["go to shelf 1", "go to shelf 2", "look", "go to shelf 1"], 0.9)
        array([0, 0, 1, 0])

    Args:
        states: Texts, shape (N,).
        threshold: The least ratio of similar texts, in (0, 1].

    Returns:
        The number of each text's group, int64 of shape (N,), from 0 in the order of opening.

    Raises:
        CreditError: The threshold is out of range, or a state is no text.
    """
    if (
        isinstance(threshold, bool)
        or not isinstance(threshold, Real)
        or not 0 < float(threshold) <= 1
    ):
        raise CreditError(f"threshold must be a number in (0, 1], not {threshold!r}")
    _refuse_what_is_no_text(states)
    distinct = dict.fromkeys(states, 0)
    templates = _Templates(float(threshold))
    texts = list(distinct)
    for text, codes in zip(texts, _codes(texts), strict=True):
        distinct[text] = templates.group_of(_Text(text, codes))
    return np.fromiter((distinct[state] for state in states), np.int64, len(states))


def _refuse_what_is_no_text(states: Sequence[str]) -> None:
    if isinstance(states, str):
        raise CreditError("states must be a sequence of str, not one str")
    wrong = [row for row, state in enumerate(states) if not isinstance(state, str)]
    if wrong:
        kinds = ", ".join(sorted({type(states[row]).__name__ for row in wrong}))
        shown = ", ".join(map(str, wrong[:10])) + (" …" if len(wrong) > 10 else "")
        raise CreditError(
            f"similarity compares states that are str; rows {shown} are {kinds}", rows=wrong
        )


def _codes(texts: list[str]) -> list[Codes]:
    """Each text as an array of its letters, in as few bytes a letter as will tell all apart."""
    points = [np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4") for text in texts]
    highest = max((int(each.max()) for each in points if len(each)), default=0)
    if highest < 256:
        return [each.astype(np.uint8) for each in points]
    seen = np.zeros(highest + 1, dtype=bool)
    for each in points:
        seen[each] = True
    ranks = np.cumsum(seen) - 1
    ranks = ranks.astype(np.min_scalar_type(int(ranks[-1])))
    return [ranks[each] for each in points]


class _Text:
    """A text, and what is worked out about it once, when it is first asked for."""

    def __init__(self, text: str, codes: Codes) -> None:
        self.text = text
        self.codes = codes

    @cached_property
    def letters(self) -> Ints:
        """How often it has each letter, in buckets."""
        return np.bincount(self.codes % LETTERS, minlength=LETTERS)

    @cached_property
    def pairs(self) -> Ints:
        """How often it has each pair of letters side by side, in buckets."""
        codes = self.codes.astype(np.int64)
        return np.bincount((codes[:-1] * 37 + codes[1:]) % PAIRS, minlength=PAIRS)

    @cached_property
    def places(self) -> dict[str, int] | None:
        """Of each letter the bits, from the lowest, of the places where it stands.

        None where that would take too much memory: a long text, and hardly a letter twice.
        """
        letters, first = np.unique(self.codes, return_index=True)
        if len(letters) * len(self.codes) > MOST_BITS:
            return None
        return {
            self.text[place]: _bits(self.codes == letter)
            for place, letter in zip(first.tolist(), letters, strict=True)
        }


def _bits(flags: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


class _Templates:
    """The first text of each group so far."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._texts: list[_Text] = []
        self._lengths = np.empty(16, dtype=np.int64)
        self._letters = np.empty((16, LETTERS), dtype=np.int32)
        self._pairs = np.empty((16, PAIRS), dtype=np.int32)

    def group_of(self, text: _Text) -> int:
        """The first group whose template is similar, or a new one."""
        for number, needed in self._candidates(text):
            template = self._texts[number]
            if _subsequence_reaches(template.text, text, needed) and _reaches(
                template, text, needed
            ):
                return number
        self._open(text)
        return len(self._texts) - 1

    def _candidates(self, text: _Text) -> list[tuple[int, int]]:
        """The templates that may be similar, and how many letters must match.

        A match of M letters leaves D = length of both − 2·M over. One letter that is put in or
        taken out changes the count of one letter, and of three pairs at most. So the counts of
        letters are at most D apart, those of pairs at most 3·D; buckets bring them closer only.
        """
        count = len(self._texts)
        both = self._lengths[:count] + len(text.text)
        needed = _needed(both, self._threshold)
        spare = both - 2 * needed
        apart = np.abs(self._lengths[:count] - len(text.text))
        near = np.flatnonzero(apart <= spare)
        for counts, own, factor in ((self._letters, text.letters, 1), (self._pairs, text.pairs, 3)):
            if len(near):
                apart = np.abs(counts[near] - own.astype(np.int32)).sum(axis=1)
                near = near[apart <= factor * spare[near]]
        return list(zip(near.tolist(), needed[near].tolist(), strict=True))

    def _open(self, text: _Text) -> None:
        count = len(self._texts)
        if count == len(self._lengths):
            self._lengths = np.concatenate([self._lengths, self._lengths])
            self._letters = np.concatenate([self._letters, self._letters])
            self._pairs = np.concatenate([self._pairs, self._pairs])
        self._lengths[count] = len(text.text)
        self._letters[count] = text.letters
        self._pairs[count] = text.pairs
        self._texts.append(text)
        vars(text).pop("places", None)  # it is large, and a template needs it no more


def _needed(both: Ints, threshold: float) -> Ints:
    """The least M for which 2·M / both, as a float, reaches the threshold."""
    least = np.maximum(np.floor(threshold * both / 2).astype(np.int64) - 1, 0)
    while (short := 2.0 * least / both < threshold).any():
        least += short
    return least


def _subsequence_reaches(a: str, b: _Text, needed: int) -> bool:
    """Whether the longest common subsequence, which is no shorter than M, has `needed` letters.

    True also where that can't be afforded.

    Bits stand for the places in b: a column of the table of subsequences' lengths, of which a zero
    says that the length grows there (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    Where `needed` letters match, ``len(a) - needed`` of a and ``len(b) - needed`` of b are left
    out at most. So no letter can match one that is farther away than these, and the others need no
    bits; and it can be said early that too many were left out.
    """
    places = b.places
    if places is None:
        return True
    spare_a, spare_b = len(a) - needed, len(b.text) - needed
    low = high = column = grown = 0  # the bits are those of the places low … high
    for start in range(0, len(a), CHUNK):
        chunk = a[start : start + CHUNK]
        end = start + len(chunk)
        passed = max(start - spare_a, 0) - low
        grown += passed - (column & ((1 << passed) - 1)).bit_count()
        low += passed
        column >>= passed
        reached = min(end + spare_b, len(b.text))
        column |= ((1 << (reached - high)) - 1) << (high - low)
        high = reached
        every = (1 << (high - low)) - 1
        at = {letter: (places.get(letter, 0) >> low) & every for letter in set(chunk)}
        for letter in chunk:
            matches = column & at[letter]
            column = (column + matches) | (column - matches)
        column &= every
        if grown + high - low - column.bit_count() < end - spare_a:
            return False
    return True


def _reaches(a: _Text, b: _Text, needed: int) -> bool:
    """Whether M, the length of Ratcliff and Obershelp's blocks, is at least `needed`."""
    gram = GRAM // a.codes.itemsize
    matched, possible = 0, min(len(a.text), len(b.text))
    # Each part comes with its blocks of some length or more, as far as they are known.
    parts: list[tuple[Part, list[Block], int]] = [((0, len(a.text), 0, len(b.text)), [], 0)]
    while matched < needed <= possible:
        part, blocks, least = parts.pop()
        a_low, a_high, b_low, b_high = part
        smaller = min(a_high - a_low, b_high - b_low)
        possible -= smaller
        if not blocks and least != gram and smaller > SHORT:
            blocks, least = _long_blocks(a.codes, b.codes, part)
        if blocks:
            i, j, size = min(blocks, key=_first_of_the_longest)
        else:
            i, j, size = _longest(a.text[a_low:a_high], b.text[b_low:b_high])
            i, j = i + a_low, j + b_low
        if not size:
            continue
        matched += size
        possible += size
        for rest in ((a_low, i, b_low, j), (i + size, a_high, j + size, b_high)):
            if smaller := min(rest[1] - rest[0], rest[3] - rest[2]):
                possible += smaller
                parts.append((rest, _within(rest, blocks, least), least))
    return matched >= needed


def _first_of_the_longest(block: Block) -> Block:
    i, j, size = block
    return -size, i, j


def _long_blocks(a: Codes, b: Codes, part: Part) -> tuple[list[Block], int]:
    """All common blocks of some length or more that can't be made longer, and that length.

    Equal grams that follow each other on a diagonal (i + 1 with j + 1) are one block. A gram is as
    many letters as go into 8 bytes; where too many are equal, twice as many, and so on.

    Returns:
        The blocks and the gram's length; that is 0 if no gram is fit to find them.
    """
    a_low, a_high, b_low, b_high = part
    size = shortest = GRAM // a.itemsize
    of_a, of_b = _grams(a[a_low:a_high]), _grams(b[b_low:b_high])
    while True:
        order = np.argsort(of_b)
        ordered = of_b[order]
        first = np.searchsorted(ordered, of_a)
        counts = np.searchsorted(ordered, of_a, side="right") - first
        total = int(counts.sum())
        if not total:
            return [], size if size == shortest else 0
        if total <= MANY * (len(of_a) + len(of_b)):
            break
        if total > len(of_a) * len(of_b) // 8:
            return [], 0  # "aaaa…" and "abab…": there will be too many of any size
        of_a, of_b = _of_twice_the_size(of_a, of_b, size)
        size *= 2
    i = np.repeat(np.arange(len(of_a)), counts)
    j = order[np.arange(total) + np.repeat(first - np.cumsum(counts) + counts, counts)]
    wide = a_high - a_low + 1
    places = np.sort((j - i + wide) * wide + i)  # by diagonal, then by i
    ends = np.flatnonzero(np.diff(places, append=places[-1] + 2) != 1)
    grams = np.diff(ends, prepend=-1)
    diagonals, i = np.divmod(places[ends - grams + 1], wide)
    found = (i + a_low, diagonals - wide + i + b_low, grams + size - 1)
    return list(zip(*(each.tolist() for each in found), strict=True)), size


def _of_twice_the_size(of_a: Ints, of_b: Ints, size: int) -> tuple[Ints, Ints]:
    """Numbers for grams of twice the size, which are equal where the grams are."""
    ranks = np.unique(np.concatenate([of_a, of_b]), return_inverse=True)[1]
    a, b = ranks[: len(of_a)], ranks[len(of_a) :]
    return a[:-size] * len(ranks) + a[size:], b[:-size] * len(ranks) + b[size:]


def _grams(codes: Codes) -> Ints:
    """The 8 bytes from each letter on, as a number."""
    count = max(len(codes) - GRAM // codes.itemsize + 1, 0)
    return np.ndarray(count, np.int64, codes, strides=(codes.itemsize,)).copy()


def _within(part: Part, blocks: list[Block], least: int) -> list[Block]:
    """What lies within the part, of blocks, where that has the length that a block must have."""
    a_low, a_high, b_low, b_high = part
    found = []
    for i, j, size in blocks:
        begin = max(a_low - i, b_low - j, 0)
        end = min(a_high - i, b_high - j, size)
        if end - begin >= least:
            found.append((i + begin, j + begin, end - begin))
    return found


def _longest(a: str, b: str) -> Block:
    """The longest common block: of several the first in a, of these the first in b; linear.

    A suffix automaton of b reads a (Blumer et al. 1985, "The smallest automaton recognizing the
    subwords of a text").
    """
    if a in b:
        return 0, b.index(a), len(a)
    if b in a:
        return a.index(b), 0, len(b)
    after, shorter, lengths, ends = _automaton(b)
    state = size = longest = 0
    a_end = b_end = 0
    for end, letter in enumerate(a, 1):
        while state and letter not in after[state]:
            state = shorter[state]
            size = lengths[state]
        if letter in after[state]:
            state = after[state][letter]
            size += 1
            if size > longest:
                longest, a_end, b_end = size, end, ends[state]
    return a_end - longest, b_end - longest, longest


def _automaton(text: str) -> tuple[list[dict[str, int]], list[int], list[int], list[int]]:
    """The suffix automaton of a text, whose states are what can be read from anywhere in it.

    Returns:
        Of each state: the state after a letter, the state of its longest suffix that stands at
        more places, the length of the longest that it stands for, and where that ends first.
    """
    after: list[dict[str, int]] = [{}]
    shorter, lengths, ends = [-1], [0], [0]
    last = 0
    for end, letter in enumerate(text, 1):
        new = len(after)
        after.append({})
        shorter.append(0)
        lengths.append(end)
        ends.append(end)
        state, last = last, new
        while state >= 0 and letter not in after[state]:
            after[state][letter] = new
            state = shorter[state]
        if state < 0:
            continue
        old = after[state][letter]
        if lengths[old] != lengths[state] + 1:  # it stands for longer ones too: split it
            split = len(after)
            after.append(after[old].copy())
            shorter.append(shorter[old])
            lengths.append(lengths[state] + 1)
            ends.append(ends[old])
            shorter[old] = split
            while state >= 0 and after[state].get(letter) == old:
                after[state][letter] = split
                state = shorter[state]
            old = split
        shorter[new] = old
    return after, shorter, lengths, ends
