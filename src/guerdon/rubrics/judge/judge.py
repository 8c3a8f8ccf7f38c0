"""`LLMJudge`: a rubric whose score a language model gives."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from guerdon._background import run
from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.judge.asking import ModelJudge, Question, ToolCaller, judges_of, question_of
from guerdon.rubrics.judge.cache import Cache, cache_of
from guerdon.rubrics.judge.criterion import Criterion, criteria_of, current_scores
from guerdon.rubrics.judge.judge_settings import (
    Field,
    JudgeSettings,
    JudgeValues,
    Setting,
    check_fields,
)
from guerdon.rubrics.judge.judgement import Judgement, judgement_of
from guerdon.rubrics.judge.panel import Panel
from guerdon.rubrics.judge.template import Template, as_text
from guerdon.rubrics.judge.verdict_text import Scale
from guerdon.rubrics.rubric import Rubric
from guerdon.services.bridging import on_background
from guerdon.services.models.chat import ChatModel
from guerdon.services.models.retrying import Backoff
from guerdon.services.models.usage import Usage

__all__ = ["LLMJudge"]


class LLMJudge(Rubric):
    """Asks a language model for a score.

    The model is told what it judges between marks that nothing in it can forge, and answers with
    a JSON object, which endpoints that know structured output hold it to. What can't be read as a
    verdict, or is out of range, is a failure, as is a judge that gives no answer: never a number.

    In sync code it waits for the model; `evaluate` and the other async calls await it. Copies
    share connections, limits and the cache. With several samples or judges, `Score.reason` tells
    how far they differ.

    Example:
        >>> from guerdon import LLMJudge
        >>> judge = LLMJudge("How polite is this? {action}", "http://localhost:8000", model="m")
        >>> judge.score_range
        (0.0, 1.0)

    Args:
        prompt_template: A `Template` with ``{action}``, ``{observation}``, parts of these such as
            ``{observation.question}``, and the names of `fields`. Where there are `fields`, any
            other name is an error at once; without them it is looked up in the observation and
            in its metadata. An environment's action is filled in as JSON, and its text is
            ``{action.content}``. None for a service that has a prompt of its own: it is given the
            action, the observation and the fields, as texts.
        endpoint: The address of a server that speaks OpenAI's protocol (it holds ``://``), a
            `ChatModel`, or, with `mcp_client`, the name of a service.
        model: The model's name, with an address.
        judges: Further judges beside it: `ChatModel`, models at the same address, or services.
        mcp_client: Calls the services, such as an `MCPClient`.
        fields: Names to paths such as ``"observation.metadata.reference"``, or to functions of
            action and observation.
        criteria: What is scored one by one in a single answer: names, or names with what they
            mean (a text or a `Criterion`). Each is a component, and the score is their mean by
            weight.
        score_range: The lowest and highest score that the model may give.
        samples: How often each judge is asked, from 1 to 1,000.
        aggregate: What several verdicts come to: ``"mean"``, ``"median"`` or ``"majority"`` (the
            most frequent score; of several that are as frequent, the lowest).
        temperature: Of sampling, in [0, 2]; by default the `ChatModel`'s or the service's, else 0,
            and 1 with several samples in place of 0. It is nothing to a tool.
        max_tokens: The longest answer; by default the endpoint's.
        system: What the model is told first.
        cache: ``"memory"``, the path of an SQLite file, a `MemoryCache`, or a `SqliteCache`. Equal
            questions that are asked at the same time are then asked once.
        version: Goes into the cache's keys: another one asks anew. A service that changes its own
            prompt needs that.
        api_key_env: The environment variable with the key, with an address.
        timeout_s: Seconds that one attempt may take, with an address.
        retries: How often to try again, or a `Backoff`, with an address.
        concurrency: How many questions may be under way at once, with an address.

    Raises:
        InvalidArgumentError: An argument can't be meant.
        MissingExtraError: The package ``openai`` isn't there: ``pip install 'guerdon[judge]'``.
    """

    state_names: ClassVar[tuple[str, ...]] = (
        "aggregate", "asked", "max_tokens", "prompt_template", "samples", "scale", "system",
        "temperature", "version",
    )  # fmt: skip

    samples, aggregate = Setting(), Setting()
    temperature, max_tokens = Setting(), Setting()
    system, version = Setting(), Setting()

    def __init__(
        self,
        prompt_template: str | None,
        endpoint: str | ChatModel,
        *,
        model: str | None = None,
        judges: Sequence[str | ChatModel] = (),
        mcp_client: ToolCaller | None = None,
        fields: Mapping[str, Field] | None = None,
        criteria: Sequence[str] | Mapping[str, str | Criterion] | None = None,
        score_range: Scale = (0.0, 1.0),
        samples: int = 1,
        aggregate: str = "mean",
        temperature: float | None = None,
        max_tokens: int | None = None,
        system: str | None = None,
        cache: Cache | str | os.PathLike[str] | None = None,
        version: str = "",
        api_key_env: str | None = None,
        timeout_s: float | None = None,
        retries: int | Backoff | None = None,
        concurrency: int | None = None,
    ) -> None:
        super().__init__()
        self._settings = JudgeSettings(
            score_range, samples, aggregate, temperature, max_tokens, system, version
        )
        if samples > 1 and temperature == 0:  # not of the settings: a state is loaded one by one
            raise InvalidArgumentError(
                f"samples is {samples} at a temperature of 0, where they are all the same; give a "
                "temperature over 0"
            )
        self.score_range = self._settings.score_range
        self.fields = check_fields(fields)
        connection = {"model": model, "api_key_env": api_key_env, "timeout_s": timeout_s,
                      "retries": retries, "concurrency": concurrency}  # fmt: skip
        asked = judges_of(endpoint, judges, mcp_client=mcp_client, connection=connection)
        self._panel = Panel(asked, cache_of(cache))
        self.prompt_template = prompt_template
        for name, criterion in criteria_of(criteria, self).items():
            setattr(self, name, criterion)

    def service_names(self) -> list[str]:
        """The services that it asks, by their names."""
        return [judge.name for judge in self._panel.judges if not isinstance(judge, ModelJudge)]

    @property
    def prompt_template(self) -> str | None:
        """The template's text; setting it checks it."""
        return None if self._template is None else self._template.text

    @prompt_template.setter
    def prompt_template(self, text: str | None) -> None:
        if text is None and any(isinstance(judge, ModelJudge) for judge in self._panel.judges):
            raise InvalidArgumentError("prompt_template is None; only a service has its own prompt")
        known = {"action", "observation", *self.fields} if self.fields else None
        self._template = None if text is None else Template(text, known=known)

    @property
    def asked(self) -> list[str]:
        """Who is asked: models with their addresses, or services. It can't be changed."""
        return [judge.name for judge in self._panel.judges]

    @asked.setter
    def asked(self, names: list[str]) -> None:
        self._refuse_change("asked", list(names), self.asked)

    @property
    def usage(self) -> dict[str, Usage]:
        """What the models were asked so far, by their names; of services, their client knows."""
        judges = [judge for judge in self._panel.judges if isinstance(judge, ModelJudge)]
        return {judge.name: judge.chat.usage for judge in judges}

    @property
    def scale(self) -> list[float]:
        """The lowest and the highest score. It can't be changed."""
        return list(self._settings.score_range)

    @scale.setter
    def scale(self, scale: list[float]) -> None:
        self._refuse_change("scale", list(scale), self.scale)

    def forward(self, action: Any, observation: Any) -> float:
        """Ask, and wait for the answer."""
        return self._tell(self.judgement(action, observation), action, observation)

    async def forward_async(self, action: Any, observation: Any) -> float:
        """Ask, and await the answer."""
        return self._tell(await self.judgement_async(action, observation), action, observation)

    def judgement(self, action: Any, observation: Any) -> Judgement:
        """All verdicts with what they come to, where the score alone isn't enough.

        Args:
            action: What the agent did.
            observation: What came of it.

        Raises:
            ServiceError: A judge gave no answer, or one that is no verdict (`JudgeError`).
            MissingInputError: A place of the prompt has no value.
        """
        question, settings = self._question(action, observation), self._settings
        verdicts = self._panel.kept(question, settings)
        if verdicts is None:
            verdicts = run(self._panel.ask(question, settings))
        return judgement_of(verdicts, settings.aggregate, weights=self._weights())

    async def judgement_async(self, action: Any, observation: Any) -> Judgement:
        """Like `judgement`, in async code, on any event loop."""
        question, settings = self._question(action, observation), self._settings
        verdicts = self._panel.kept(question, settings)
        if verdicts is None:
            verdicts = await on_background(self._panel.ask(question, settings))
        return judgement_of(verdicts, settings.aggregate, weights=self._weights())

    def close(self) -> None:
        """Close the connections that are the judge's own, and the cache's file.

        The next question opens them again. Those that nobody holds any more close by themselves.
        """
        run(self._panel.close())

    async def close_async(self) -> None:
        """Like `close`, in async code."""
        await on_background(self._panel.close())

    def _question(self, action: Any, observation: Any) -> Question:
        settings = self._settings
        criteria = {name: criterion.description for name, criterion in self._criteria().items()}
        values = JudgeValues(action, observation, self.fields)
        if self._template is not None:
            filled = self._template.fill_fenced(values)
            return question_of(filled, settings=settings, criteria=criteria)
        arguments = {name: as_text(value) for name, value in values.items()}
        return Question((), None, arguments, {}, tuple(criteria), settings)

    def _tell(self, judgement: Judgement, action: Any, observation: Any) -> float:
        """Record the reason and the components of a judgement, and give its score."""
        self.explain("%s", judgement)
        criteria = self._criteria()
        if criteria:
            scores = {id(criteria[name]): score for name, score in judgement.criteria.items()}
            token = current_scores.set(scores)
            try:
                for criterion in criteria.values():
                    criterion(action, observation)
            finally:
                current_scores.reset(token)
        return judgement.score

    def _criteria(self) -> dict[str, Criterion]:
        return {name: child for name, child in self._children.items()
                if isinstance(child, Criterion)}  # fmt: skip

    def _weights(self) -> dict[str, float] | None:
        return {name: each.weight for name, each in self._criteria().items()} or None

    def _weight_of(self, name: str) -> float | None:
        child = self._children.get(name)
        return child.weight if isinstance(child, Criterion) else None

    @staticmethod
    def _refuse_change(name: str, new: object, old: object) -> None:
        if new != old:
            raise InvalidArgumentError(
                f"{name} is {old!r:.200} and can't become {new!r:.200}; make another judge"
            )
