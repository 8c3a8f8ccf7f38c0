"""Answers that are the right mathematics."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from numbers import Number
from typing import Any, ClassVar

from guerdon._validation import check_number
from guerdon.errors import InvalidArgumentError, MissingExtraError, MissingInputError, SandboxError
from guerdon.rubrics.checks.answers import extract_answer
from guerdon.rubrics.checks.inputs import ExpectedAnswer, ground_truth_of
from guerdon.rubrics.checks.numeric import NumericAnswer
from guerdon.rubrics.checks.quantity import parse_number
from guerdon.rubrics.state import Checked
from guerdon.types.reasoning import REASONING_TAGS

__all__ = ["MathAnswer"]

_MAX_LENGTH = 2000
_LOCKS: dict[int, threading.Lock] = {}
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_DOLLARS = re.compile(r"\$+([^$]+)\$+")
_CONDITION = re.compile(r",?\s(?:since|because|for all|for|where|when|if)\b")
_MORE = re.compile(r"(?i)\b(?:not|and|or|no|than|units)\b")
# Read as one number, `x = 5` and `2 xy` would lose their variables, `1/3 ≈ 0.333` its first side,
# and `(1,234)` its order.
_MORE_THAN_A_NUMBER = re.compile(r"=|≈|\\approx|[({\[].*,|\d\s+[abcxyznpq]{2,3}\s*$")


class _LimitError(SandboxError):
    """Mathematics that needs too much time or memory."""


class MathAnswer(ExpectedAnswer):
    r"""The answer states the right mathematics.

    Expressions, equations, inequalities, sets, tuples, intervals, matrices, words such as
    `\text{even}`, letters of choices, and numbers, which are compared as by `NumericAnswer`. The
    answer is what the text states in `\boxed{…}` or on an answer line, as for `NumericAnswer`, or
    the whole text if it is one line of mathematics. It is compared exactly: `2(x+1)` equals `2x+2`,
    and 0.333 isn't 1/3; order counts in `(1, 2)`, and not in `\{1, 2\}`. `x = 5` states 5. A unit
    that only one side has is left out.

    It requires the extra ``math``: ``pip install 'guerdon[math]'``. Answers are compared in worker
    processes that all rubrics share, within limits of time and memory.

    Args:
        expected: The right answer, or a text that states it; None uses the observation's ground
            truth, which may also be a worked solution.
        field: The attribute or key of the action that contains the text.
        timeout_s: Seconds that comparing one answer may take, more than 0. An answer that needs
            more, or more than 512 MiB, is wrong; it may be tried twice.
        reasoning_tags: The tags around reasoning, which is never the answer; see
            `split_reasoning`.

    Returns:
        1.0 for the right answer; 0.0 for another, for one that isn't understood, and if none is
        stated.

    Raises:
        MissingExtraError: The extra isn't installed.
        InvalidArgumentError: `expected` isn't understood, or an argument is out of range.
        MissingInputError: At evaluation, the action has no text, or the observation has no ground
            truth that is understood.
        SandboxError: At evaluation, the worker processes can't be started.

    Example:
        >>> MathAnswer(r"(x+1)^2")(r"Thus it is \boxed{x^2 + 2x + 1}.", None)
        1.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("timeout_s",)
    timeout_s = Checked(check_number, low=0, low_open=True)

    def __init__(
        self,
        expected: str | float | None = None,
        *,
        field: str = "content",
        timeout_s: float = 5.0,
        reasoning_tags: Sequence[str] = REASONING_TAGS,
    ) -> None:
        super().__init__(reasoning_tags)
        if find_spec("math_verify") is None:
            raise MissingExtraError(
                "MathAnswer requires the package math-verify: pip install 'guerdon[math]'",
                extra="math",
            )
        self.timeout_s = timeout_s
        self.expected = expected
        self.field = field

    def checked(self, value: Any) -> Any:
        """Return the right answer as it is stored; what it states is kept beside it."""
        self._wanted = None if value is None else self._wanted_in(value)
        if value is not None and self._wanted is None:
            raise InvalidArgumentError(f"`expected` isn't understood as mathematics: {value!r:.80}")
        return value

    def _wanted_in(self, value: object) -> str | None:
        """The right answer of an author or a data set; None if it isn't understood."""
        if isinstance(value, Number) and parse_number(str(value)) is not None:
            value = str(value)
        wanted = extract_answer(value) or value if isinstance(value, str) else ""
        return wanted if self._problem(wanted, wanted) is None else None

    def forward(self, action: Any, observation: Any) -> float:
        """Compare what the action states with the right answer."""
        text = self.answer_of(action)
        wanted = self._wanted
        if wanted is None:
            truth = ground_truth_of(observation)
            wanted = self._wanted_in(truth)
            if wanted is None:
                raise MissingInputError(
                    f"the observation's ground truth isn't understood as mathematics: {truth!r:.80}"
                )
        try:
            answer = extract_answer(text)
            problem = self._problem(wanted, _mathematics(answer) if answer else _bare(text))
        except _LimitError as error:
            problem = str(error)
        if problem is not None:
            self.explain("%s", problem)
        return float(problem is None)

    def _problem(self, wanted: str, answer: str) -> str | None:
        if not answer:
            return "no answer is stated: no box, answer line or line of mathematics"
        if max(len(wanted), len(answer)) > _MAX_LENGTH:
            return f"an answer may have {_MAX_LENGTH} characters, got {len(answer)}"
        return _compare(wanted, answer, self.timeout_s)


def _mathematics(answer: str) -> str:
    """The only mathematics between dollar signs in words, before a reason or a condition."""
    stated = _CONDITION.split(answer, maxsplit=1)[0]
    parts = _DOLLARS.findall(stated)
    words = _DOLLARS.sub(" ", stated)
    has_words = stated != answer or _WORD.search(words) is not None
    return parts[0] if len(parts) == 1 and has_words and not _MORE.search(words) else answer


def _bare(text: str) -> str:
    """A text that is one line of mathematics, else nothing."""
    whole = text.strip()
    is_bare = "\n" not in whole and "boxed" not in whole and len(_WORD.findall(whole)) <= 3
    return whole if is_bare else ""


@lru_cache(maxsize=4096)
def _compare(truth: str, answer: str, seconds: float) -> str | None:
    """Why an answer is wrong; None if it is right.

    Cached because rollouts of a group often have the same answer.

    Raises:
        _LimitError: The answer needs too much time or memory.
        SandboxError: The workers don't work.
    """
    wrong = f"found {answer!r:.80}, wanted {truth!r:.80}"
    if all(
        parse_number(text) is not None and not _MORE_THAN_A_NUMBER.search(text)
        for text in (truth, answer)
    ):
        is_right = NumericAnswer(rf"\boxed{{{truth}}}")(rf"\boxed{{{answer}}}", None) == 1.0
        return None if is_right else wrong
    process = os.getpid()  # a fork has no workers
    with _LOCKS.setdefault(process, threading.Lock()):
        pool = _pool(seconds, process)
    reply = pool.call(json.dumps([truth, answer]).encode())
    if reply.content is None:
        is_fault = reply.execution.ending == "sandbox_error"
        error = SandboxError if is_fault else _LimitError
        raise error(f"{answer!r:.80} can't be evaluated: {reply.execution.detail}")
    is_right = json.loads(reply.content)
    if is_right is None:
        return f"{answer!r:.80} isn't understood"
    return None if is_right else wrong


@lru_cache(maxsize=4)
def _pool(seconds: float, _: int) -> Any:
    """The worker processes, which are ended with the last use of them, or when Python exits."""
    from guerdon.sandbox.function_pool import FunctionPool
    from guerdon.sandbox.protocol import Limits

    return FunctionPool(
        b"",
        "guerdon.rubrics.checks.expressions:load",
        level="process",
        workers=min(os.cpu_count() or 1, 8),
        limits=Limits(seconds=seconds, memory_bytes=512 << 20, processes=1, files=0),
        reuse=True,
        path=[folder for folder in sys.path if folder],
    )
