"""`Panel`: all that are asked for one judgement, and the cache in front of them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

from guerdon.rubrics.judge.asking import OneJudge, Question
from guerdon.rubrics.judge.cache import Cache
from guerdon.rubrics.judge.judge_prompt import PROMPT_VERSION
from guerdon.rubrics.judge.judge_settings import JudgeSettings
from guerdon.rubrics.judge.verdict import PARSER_VERSION, JudgeVerdict

__all__ = ["Panel"]


class Panel:
    """Asks each judge as often as there are samples, or takes what the cache keeps.

    Args:
        judges: Who is asked.
        cache: What keeps verdicts; None asks each time.
    """

    def __init__(self, judges: tuple[OneJudge, ...], cache: Cache | None) -> None:
        self.judges = judges
        self.cache = cache

    def kept(self, question: Question, settings: JudgeSettings) -> list[JudgeVerdict] | None:
        """The verdicts, where the cache keeps them all; from any thread."""
        if self.cache is None:
            return None
        verdicts = []
        for _, key in self._keys(question, settings):
            kept = self.cache.get(key)
            verdict = None if kept is None else _of_json(kept)
            if verdict is None:
                return None
            verdicts.append(verdict)
        return verdicts

    async def ask(self, question: Question, settings: JudgeSettings) -> list[JudgeVerdict]:
        """The verdicts, judge by judge; on the background loop.

        The first failure ends the other questions, and is raised.
        """
        if self.cache is None:
            jobs = [judge.ask(question) for judge in self.judges for _ in range(settings.samples)]
        else:
            cache = self.cache
            jobs = [_fetch(cache, key, judge, question)
                    for judge, key in self._keys(question, settings)]  # fmt: skip
        if len(jobs) == 1:
            return [await jobs[0]]
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Close what was opened for it, the cache's file included; the next use opens it again."""
        for judge in self.judges:
            await judge.close()
        if self.cache is not None:
            self.cache.close()

    def _keys(self, question: Question, settings: JudgeSettings) -> Iterator[tuple[OneJudge, str]]:
        """Who is asked, with a digest of everything that the verdict depends on."""
        asked = [
            PROMPT_VERSION, PARSER_VERSION, settings.version, question.messages,
            question.arguments, question.criteria, settings.score_range,
        ]  # fmt: skip
        begun = hashlib.blake2b(_json(asked), digest_size=16)
        for judge in self.judges:
            for sample in range(settings.samples):
                digest = begun.copy()
                digest.update(_json([judge.identity(question), sample]))
                yield judge, digest.hexdigest()


async def _fetch(cache: Cache, key: str, judge: OneJudge, question: Question) -> JudgeVerdict:
    async def ask() -> str:
        return json.dumps((await judge.ask(question)).to_dict())

    verdict = _of_json(await cache.fetch(key, ask))
    if verdict is None:  # somebody else has written there
        answer = await judge.ask(question)
        cache.put(key, json.dumps(answer.to_dict()))
        return answer
    return verdict


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()


def _of_json(text: str) -> JudgeVerdict | None:
    """What a cache keeps; None where that is no verdict."""
    try:
        told = json.loads(text)
        score, criteria = told.get("score"), dict(told.get("criteria", {}))
        numbers = [*criteria.values(), *(() if score is None and criteria else (score,))]
        if not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
            return None
        return JudgeVerdict(score, str(told["reasoning"]), criteria)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
