"""`LLMJudge`: a rubric whose score a language model gives."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, TypeAlias

from guerdon._background import on_background, run
from guerdon._http import shown_url
from guerdon._validation import (
    check_choice,
    check_integer,
    check_number,
    check_range,
    check_type,
    shown,
)
from guerdon.errors import InvalidArgumentError, JudgeError, RubricError, ServiceError
from guerdon.rubrics.ensemble import REDUCTIONS
from guerdon.rubrics.evaluation import together
from guerdon.rubrics.judge.cache import Cache, MemoryCache, cache_of
from guerdon.rubrics.judge.question import (
    PROMPT_VERSION,
    ChatClient,
    Question,
    ServiceClient,
    ask_model,
    ask_service,
    naming_service,
)
from guerdon.rubrics.judge.template import MISSING, Template, as_text, look_up, part_of
from guerdon.rubrics.judge.verdict import (
    PARSER_VERSION,
    Bounds,
    Judgement,
    JudgeVerdict,
    judgement_of,
    stored_verdict,
)
from guerdon.rubrics.recording import current
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import MADE_WITH, Checked

__all__ = ["Criterion", "LLMJudge"]

MAX_SAMPLES = 1000
ALWAYS = ("action", "observation")
CRITERION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)

# The source of a field: a dotted path, or a function of action and observation.
Field: TypeAlias = "str | Callable[[Any, Any], Any]"

# The scores of the criteria of the judge that is being evaluated, by the id of the criterion.
_criterion_scores: ContextVar[Mapping[int, float]] = ContextVar("guerdon_criteria")


class Criterion(Rubric):
    """One criterion of an `LLMJudge`, and a component of its score.

    Example:
        >>> from guerdon.rubrics import Criterion
        >>> Criterion("It is easy to follow.", weight=2)
        Criterion(description='It is easy to follow.', weight=2.0)

    Args:
        description: What the model is asked to look at.
        weight: Its weight in the judge's score, above 0.
    """

    state_names: ClassVar[tuple[str, ...]] = ("weight",)
    description = Checked(check_type, kind=str)
    weight = Checked(check_number, low=0.0, low_open=True)

    def __init__(self, description: str = "", *, weight: float = 1.0) -> None:
        super().__init__()
        self.description = description
        self.weight = weight

    def forward(self, action: Any, observation: Any) -> float:
        """Return the score in the judge's answer."""
        score = _criterion_scores.get({}).get(id(self))
        if score is None:
            raise RubricError("a criterion is only scored as part of its judge; call the judge")
        return score


class LLMJudge(Rubric):
    """Asks a chat model for a score.

    The judged values are put between marks that they can't forge. The model answers with a JSON
    object, constrained by a schema if the endpoint supports structured output. An answer that is
    not a verdict, or is out of range, is a failure, as is a model that doesn't answer: never a
    number.

    Synchronous code waits for the answer; `evaluate` and the other async methods await it. Copies
    share the models and the cache. With several samples or models, `Score.reason` includes their
    disagreement.

    Example:
        >>> from guerdon import LLMJudge
        >>> from guerdon.services import ChatModel
        >>> model = ChatModel("http://localhost:8000", "my-model")
        >>> judge = LLMJudge("How polite is this? {action}", model)
        >>> judge.score_range
        (0.0, 1.0)

    Args:
        prompt_template: A `Template` with ``{action}``, ``{observation}``, parts of them such as
            ``{observation.question}``, and the names of `fields`. With `fields`, any other name is
            rejected; without, it is looked up in the observation and in its metadata. An action
            of an environment is inserted as JSON, and its text is ``{action.content}``. None for
            a service that has a prompt of its own: it is called with the action, the observation
            and the fields, as strings.
        endpoint: A `ChatModel`, or the name of a service; or a list of several.
        mcp_client: Calls the services, such as an `MCPClient`; by default that of the environment
            or the reward file that the judge is part of.
        fields: Names, each with a path such as ``"observation.metadata.reference"`` or a function
            of action and observation.
        criteria: What is scored instead of the whole, in one answer: a list of names, or names
            with descriptions (a string or a `Criterion`). Each criterion is a component; the
            score is their weighted mean.
        score_range: The lowest and highest score.
        samples: How often each model is asked, in [1, 1000]. With several, a model whose
            temperature is 0 is asked with a temperature of 1.
        aggregate: How verdicts are aggregated: ``"mean"``, ``"median"``, ``"min"`` or
            ``"majority"`` (the most frequent score, the lowest of several).
        system: The beginning of the system message, in place of "You are a strict and fair
            judge."
        cache: ``"memory"``, the path of an SQLite file, a `MemoryCache` or a `SqliteCache`. Equal
            questions at the same time are then asked once.

    Raises:
        InvalidArgumentError: An argument is invalid.
    """

    state_names: ClassVar[tuple[str, ...]] = ("aggregate", "prompt_template", "samples", "system")
    samples = Checked(check_integer, low=1, high=MAX_SAMPLES)
    aggregate = Checked(check_choice, choices=REDUCTIONS)
    system: Checked[str | None] = Checked(check_type, optional=True, kind=str)

    def __init__(
        self,
        prompt_template: str | None,
        endpoint: str | ChatClient | Sequence[str | ChatClient],
        *,
        mcp_client: ServiceClient | None = None,
        fields: Mapping[str, Field] | None = None,
        criteria: Sequence[str] | Mapping[str, str | Criterion] | None = None,
        score_range: Bounds = (0.0, 1.0),
        samples: int = 1,
        aggregate: str = "mean",
        system: str | None = None,
        cache: Cache | str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self.score_range = self._bounds = check_range("score_range", score_range)
        self.fields = _check_fields(fields)
        self._client, self._is_own_client = mcp_client, mcp_client is not None
        self._asked = _check_asked(endpoint)
        self._cache = cache_of(cache)
        self.samples, self.aggregate, self.system = samples, aggregate, system
        self.prompt_template = prompt_template
        for name, criterion in _check_criteria(criteria, self).items():
            setattr(self, name, criterion)
        self.__dict__[MADE_WITH] = (f"{self.score_range}", *self.asked)

    # Configuration ---------------------------------------------------------------------------

    @property
    def asked(self) -> list[str]:
        """The names of the models and services that are asked."""
        return [each if isinstance(each, str) else each.name for each in self._asked]

    def service_names(self) -> list[str]:
        """Return the names of the services that are asked."""
        return [each for each in self._asked if isinstance(each, str)]

    def use_services(self, client: ServiceClient) -> None:
        """Call the services that it asks with a client, unless it was created with one.

        An environment and a pipeline call it for the judges in their rubric.

        Example:
            >>> from guerdon import LLMJudge, MCPClient
            >>> from guerdon.services import OpenAIService
            >>> model = OpenAIService(endpoint="http://localhost:8000", model="qwen3-8b")
            >>> judge = LLMJudge("How polite is this? {action}", "politeness")
            >>> judge.use_services(MCPClient({"politeness": model}))

        Raises:
            InvalidArgumentError: The client has no such service, or the judge already calls
                others of that name, of another environment or pipeline.
        """
        names = self.service_names()
        if self._is_own_client or not names:
            return
        digests = [f"{name}={client.fingerprint(name)}" for name in names]
        if self._client is None:
            self.__dict__[MADE_WITH] = (*self.__dict__[MADE_WITH], *digests)
            self._client = client
        elif not {*digests} <= {*self.__dict__[MADE_WITH]}:
            raise InvalidArgumentError(
                f"the judge already calls another service {names[0]!r}: make a judge for each "
                "environment and pipeline that has services of its own"
            )

    def _connected(self, service: str) -> ServiceClient:
        if self._client is None:
            raise ServiceError(
                f"the judge has no services to call {service!r}: pass mcp_client=MCPClient(…), set "
                "the services of its environment or reward file, or use --services",
                service=service,
            )
        return self._client

    @property
    def prompt_template(self) -> str | None:
        """The text of the template."""
        return None if self._template is None else self._template.text

    @prompt_template.setter
    def prompt_template(self, text: str | None) -> None:
        if text is None and len(self.service_names()) < len(self._asked):
            raise InvalidArgumentError(
                "`prompt_template` is None; only a service can have a prompt of its own"
            )
        known = {*ALWAYS, *self.fields} if self.fields else None
        self._template = None if text is None else Template(text, known=known)

    def _criteria(self) -> dict[str, Criterion]:
        return {
            name: child for name, child in self._children.items() if isinstance(child, Criterion)
        }

    def _weight_of(self, name: str) -> float | None:
        child = self._children.get(name)
        return child.weight if isinstance(child, Criterion) else None

    # Judging ---------------------------------------------------------------------------------

    def forward(self, action: Any, observation: Any) -> float:
        """Ask, and wait for the answer."""
        with self._keeping_answer():
            judgement = self.judgement(action, observation)
        return self._scored(judgement, action, observation)

    async def forward_async(self, action: Any, observation: Any) -> float:
        """Ask, and await the answer."""
        with self._keeping_answer():
            judgement = await self.judgement_async(action, observation)
        return self._scored(judgement, action, observation)

    def judgement(self, action: Any, observation: Any) -> Judgement:
        """Return all verdicts with their aggregate.

        Args:
            action: What the agent did.
            observation: What came of it.

        Raises:
            ServiceError: A model gave no answer, or one that is not a verdict (`JudgeError`).
            MissingInputError: A field of the prompt has no value.
        """
        question = self._question(action, observation)
        verdicts = self._cached(question)
        return self._aggregated(run(self._ask_all(question)) if verdicts is None else verdicts)

    async def judgement_async(self, action: Any, observation: Any) -> Judgement:
        """Like `judgement`, in async code, on any event loop."""
        question = self._question(action, observation)
        # A file is read on the background loop, which doesn't wait for it.
        verdicts = self._cached(question) if isinstance(self._cache, MemoryCache) else None
        if verdicts is None:
            verdicts = await on_background(self._ask_all(question))
        return self._aggregated(verdicts)

    def _question(self, action: Any, observation: Any) -> Question:
        names = self.fields if self._template is None else self._template.fields
        values = {"action": action, "observation": observation}
        values |= self._further(dict.fromkeys(each.partition(".")[0] for each in names), values)
        prompt, arguments = None, {}
        if self._template is None:
            arguments = {name: as_text(value) for name, value in values.items()}
        else:
            prompt = self._template.fill_fenced(values)
        criteria = {name: each.description for name, each in self._criteria().items()}
        self._detail("prompt", arguments if prompt is None else prompt.text)
        return Question(prompt, arguments, self.system, criteria, self._bounds)

    def _detail(self, name: str, content: Any) -> None:
        """Add a detail to the score, where the evaluation is recorded."""
        frame = current()
        if frame is not None and frame.rubric is self:
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            frame.detail(name, text)

    @contextmanager
    def _keeping_answer(self) -> Iterator[None]:
        """Add an answer that is not a verdict to the score, beside the prompt."""
        try:
            yield
        except JudgeError as error:
            self._detail("answer", error.answer)
            raise

    def _further(self, names: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of names other than `given`: fields, or parts of the observation."""
        values = {}
        observation = given["observation"]
        for name in names.keys() - given.keys():
            source = self.fields.get(name)
            if isinstance(source, str):
                values[name] = look_up(source, given)
            elif source is not None:
                values[name] = source(given["action"], observation)
            else:
                value = part_of(observation, name)
                if value is MISSING:
                    value = part_of(part_of(observation, "metadata"), name)
                if value is not MISSING:
                    values[name] = value
        return values

    def _aggregated(self, verdicts: Sequence[JudgeVerdict]) -> Judgement:
        weights = {name: criterion.weight for name, criterion in self._criteria().items()}
        return judgement_of(verdicts, self.aggregate, weights=weights or None)

    def _scored(self, judgement: Judgement, action: Any, observation: Any) -> float:
        """Record the reason and the criteria of a judgement, and return its score."""
        self.explain("%s", judgement)
        self._detail("answer", [verdict.to_dict() for verdict in judgement.verdicts])
        criteria = self._criteria()
        if criteria:
            scores = {id(criteria[name]): score for name, score in judgement.criteria.items()}
            token = _criterion_scores.set(scores)
            try:
                for criterion in criteria.values():
                    criterion(action, observation)
            finally:
                _criterion_scores.reset(token)
        return judgement.score

    # Asking, on the background loop ----------------------------------------------------------

    async def _ask_all(self, question: Question) -> list[JudgeVerdict]:
        """Ask every model, as often as there are samples; the first failure ends the others."""
        asked = [each for each in self._asked for _ in range(self.samples)]
        if self._cache is None:
            return await together([partial(self._ask, each, question) for each in asked])
        pairs = zip(self._keys(question), asked, strict=True)
        return await together([partial(self._fetch, *pair, question) for pair in pairs])

    async def _ask(self, asked: str | ChatClient, question: Question) -> JudgeVerdict:
        if not isinstance(asked, str):
            return await ask_model(asked, question, temperature=self._temperature(asked))
        client = self._connected(asked)
        chat = client.chat_model(asked) if question.prompt is not None else None
        if chat is None:
            return await ask_service(client, asked, question)
        with naming_service(asked):
            return await ask_model(chat, question, temperature=self._temperature(chat))

    def _temperature(self, chat: ChatClient) -> float | None:
        return 1.0 if self.samples > 1 and chat.temperature == 0 else None

    # The cache -------------------------------------------------------------------------------

    def _cached(self, question: Question) -> list[JudgeVerdict] | None:
        """All verdicts, if the cache has them."""
        if self._cache is None:
            return None
        stored = [self._cache.get(key) for key in self._keys(question)]
        found = [_stored(question, text) for text in stored if text is not None]
        verdicts = [each for each in found if each is not None]
        return verdicts if len(verdicts) == len(stored) else None

    async def _fetch(self, key: str, asked: str | ChatClient, question: Question) -> JudgeVerdict:
        assert self._cache is not None

        async def ask() -> str:
            return json.dumps(asdict(await self._ask(asked, question)))

        def is_valid(text: str) -> bool:
            return _stored(question, text) is not None

        return JudgeVerdict(**json.loads(await self._cache.fetch(key, ask, is_valid)))

    def _keys(self, question: Question) -> list[str]:
        """The key of each verdict: a digest of everything that it depends on."""
        prompt = None if question.prompt is None else question.prompt.text
        common = [
            PROMPT_VERSION, PARSER_VERSION, prompt, dict(question.arguments), question.system,
            list(question.criteria.items()), question.score_range, self.samples > 1,
        ]  # fmt: skip
        begun = hashlib.blake2b(json.dumps(common).encode(), digest_size=16)
        keys = []
        for asked in self._asked:
            if isinstance(asked, str):
                identity = [asked, self._connected(asked).fingerprint(asked)]
            else:
                identity = [asked.fingerprint()]
            for sample in range(self.samples):
                digest = begun.copy()
                digest.update(json.dumps([identity, sample]).encode())
                keys.append(digest.hexdigest())
        return keys


def _stored(question: Question, text: str) -> JudgeVerdict | None:
    """The verdict in an entry of the cache."""
    return stored_verdict(text, score_range=question.score_range, criteria=[*question.criteria])


def _check_asked(endpoint: Any) -> tuple[str | ChatClient, ...]:
    asked = tuple(endpoint) if isinstance(endpoint, (list, tuple)) else (endpoint,)
    for each in asked:
        is_service = isinstance(each, str) and each and "://" not in each
        if not is_service and not isinstance(each, ChatClient):
            raise InvalidArgumentError(
                "`endpoint` must be a ChatModel, or the name of a service, not its address; or a "
                "list of these; got "
                f"{shown(shown_url(each) if isinstance(each, str) else each)}"
            )
    if not asked:
        raise InvalidArgumentError("`endpoint` must not be empty")
    return asked


def _check_fields(fields: Any) -> dict[str, Field]:
    if fields is not None and not isinstance(fields, Mapping):
        raise InvalidArgumentError(f"`fields` must be a mapping, got {shown(fields)}")
    for name, source in (fields or {}).items():
        if not isinstance(name, str) or not name.isidentifier() or name in ALWAYS:
            raise InvalidArgumentError(
                f"the names of `fields` must be identifiers other than {' and '.join(ALWAYS)}, "
                f"got {shown(name)}"
            )
        is_path = isinstance(source, str) and source.partition(".")[0] in ALWAYS
        if not is_path and not callable(source):
            raise InvalidArgumentError(
                f"fields[{name!r}] must be a path such as 'observation.metadata.reference', or a "
                f"function of action and observation, got {shown(source)}"
            )
    return dict(fields or {})


def _check_criteria(given: Any, judge: LLMJudge) -> dict[str, Criterion]:
    if given is None:
        return {}
    named = dict.fromkeys(given, "") if isinstance(given, (list, tuple)) else given
    if not isinstance(named, Mapping) or not named or len(named) < len(given):
        raise InvalidArgumentError(
            "`criteria` must be a list of names, each once, or names with descriptions, got "
            f"{shown(given)}"
        )
    for name in named:
        if not isinstance(name, str) or not CRITERION_NAME.fullmatch(name) or hasattr(judge, name):
            raise InvalidArgumentError(
                f"the names of `criteria` must consist of letters, digits and underscores and not "
                f"be attributes of LLMJudge, got {shown(name)}"
            )
    return {
        name: each if isinstance(each, Criterion) else Criterion(each)
        for name, each in named.items()
    }
