"""`RewardRuntime`: the configuration of a running reward, and its changes."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from guerdon._loading import name_of
from guerdon._problems import place_text
from guerdon.config.curriculum import Curriculum, EpisodeMeans, Progress
from guerdon.config.patch import Entry, RewardPatch, read_patch, split_own
from guerdon.config.schedules import Schedule
from guerdon.config.schema import LISTS, SCHEMA_VERSION, RewardConfig
from guerdon.config.tunables import configure, tunable_fields
from guerdon.errors import ConfigConflictError, RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import FingerprintParts, describe

__all__ = ["RewardRuntime"]

logger = logging.getLogger("guerdon.config")

# How many changes, and how many descriptions of trees, are kept.
MAX_CHANGES = 1000
MAX_DESCRIPTIONS = 256
# How many characters of a value are logged, and what is logged in place of a private one.
MAX_LOGGED = 1000
PRIVATE = "(private)"

# What `apply` sets on a tree.
MARKS = ("_scored_by", "_is_alike", "_watch")


class Applied(NamedTuple):
    """A configuration that was applied to a tree.

    Attributes:
        episode: The number of the episode that begins.
        undo: Restores the former configuration.
    """

    episode: int
    undo: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Configuration:
    """A configuration at one time: immutable, and rendered once.

    Attributes:
        number: How many changes there were.
        digest: A digest of the initial configuration and of the changes.
        weights: Weights by the names of entries.
        schedules: Schedules by the names of entries; None where one was removed.
        tuned: The values of the tunable fields that were changed, by their dotted names.
        reweighted: The names of the entries whose weights were changed.
        entries: The rendered entries by name.
        own: The environment's own configuration.
        own_changes: What was changed of it.
    """

    number: int
    digest: str
    weights: Mapping[str, float]
    schedules: Mapping[str, Schedule | None]
    tuned: Mapping[str, Any]
    reweighted: frozenset[str]
    entries: Mapping[str, dict[str, Any]]
    own: Mapping[str, Any]
    own_changes: Mapping[str, Any]

    @property
    def version(self) -> str:
        """Its version, with which a client detects changes of others."""
        return f"{self.number}-{self.digest}"


@dataclass(frozen=True, slots=True)
class EpisodeConfiguration:
    """The configuration of one episode; it pickles, to be applied in another process.

    Attributes:
        episode: The number of the episode.
        weights: The weights that differ from those of the tree, by name.
        factors: The factors of the schedules, by name; None if there are no schedules.
        tuned: The values of the tunable fields that were changed, by their dotted names.
        fingerprint: The fingerprint of a tree like the prototype with this configuration.
        own: What was changed of the environment's own configuration.
        is_observed: Whether a curriculum needs the means of the episode.
    """

    episode: int
    weights: Mapping[str, float]
    factors: Mapping[str, float] | None
    tuned: Mapping[str, Any]
    fingerprint: str
    own: Mapping[str, Any]
    is_observed: bool

    def apply(self, rubric: Rubric, observe: Callable[[dict[str, float]], Any]) -> Applied:
        """Configure a tree; see `RewardRuntime.apply`.

        Args:
            rubric: The tree.
            observe: Called with the mean of each component at the end of the episode, if a
                curriculum needs them.
        """
        marks = rubric.__dict__
        rubric._find_traits()
        before = {name: marks.get(name) for name in MARKS}
        undo = configure(rubric, weights=self.weights, factors=self.factors, tuned=self.tuned)
        is_alike = before["_is_alike"]
        if is_alike is None:  # each environment may build its tree differently
            is_alike = rubric.fingerprint() == self.fingerprint
        marks["_is_alike"] = is_alike
        marks["_scored_by"] = self.fingerprint if is_alike else None  # computed when it is needed
        marks["_watch"] = EpisodeMeans(observe) if self.is_observed else None
        return Applied(self.episode, lambda: (undo(), marks.update(before)))


class ReceivedConfiguration:
    """Takes the place of a `RewardRuntime` in a worker, for the environment of one slot.

    Attributes:
        configuration: That of the present episode, from the process that has the `RewardRuntime`.
        means: The means of an episode that has ended, for that process.
    """

    def __init__(self) -> None:
        self.configuration: EpisodeConfiguration | None = None
        self.means: dict[str, float] | None = None

    def begin(self, episode: int | None = None) -> EpisodeConfiguration | None:
        """Return the configuration of the episode."""
        return self.configuration

    def observe(self, means: dict[str, float]) -> None:
        """Keep the means of an episode."""
        self.means = means

    def to_dict(self) -> dict[str, Any]:
        """Refuse: the configuration is elsewhere.

        Raises:
            RewardConfigError: Always.
        """
        raise RewardConfigError("the configuration is in the process that started this worker")

    update = to_dict


class RewardRuntime:
    """The configuration of a running reward, and its changes.

    Many trees may be scored by it: each takes it over when its next episode begins (`apply`), so
    that an episode is scored by one configuration from start to end. Weights, schedules, and the
    fields that a rubric names in `Rubric.tunable` can be changed. A change is applied as a whole or
    not at all, and is logged.

    Example:
        >>> from guerdon import RubricComposer
        >>> from guerdon.config import RewardRuntime
        >>> def make():
        ...     return RubricComposer({"brief": lambda a, o: 1.0 / len(a)}, {"brief": 1.0})
        >>> runtime, rubric = RewardRuntime(make()), make()
        >>> answer = runtime.update({"weights": {"brief": 0.5}}, by="ann")
        >>> rubric("abcd", None)
        0.25
        >>> applied = runtime.apply(rubric)  # as the reset of an environment does
        >>> rubric("abcd", None)
        0.125
        >>> answer["change"]["changes"]
        [{'what': 'per_turn.brief.weight', 'from': 1.0, 'to': 0.5}]

    Args:
        prototype: A tree like those that score, which nothing else uses.
        config: The configuration that it was built from; None for a tree that was written in code.
        own: The environment's own configuration, which it keeps and renders beside the reward's.

    Attributes:
        audit: The latest 1,000 changes: when, by whom, and each value before and after.
        progress: How far training is.
    """

    def __init__(
        self,
        prototype: Rubric,
        *,
        config: RewardConfig | None = None,
        own: Mapping[str, Any] | None = None,
    ) -> None:
        stages = config.curriculum if config is not None else None
        self.progress = Progress(Curriculum(stages) if stages else None)
        self.audit: deque[dict[str, Any]] = deque(maxlen=MAX_CHANGES)
        self._lock = threading.RLock()
        self._prototype = _Prototype(prototype)
        self._entries = _entries(self._prototype, config)
        self._lists = {
            key: [name for name, each in self._entries.items() if each.list == key] for key in LISTS
        }
        self._staged = frozenset(name for stage in stages or () for name in stage.weights)
        self._rest = _rendered_rest(config, prototype)
        weights = prototype.weights if isinstance(prototype, RubricComposer) else {}
        schedules = {
            each.name: each.schedule
            for each in (config.entries if config is not None else ())
            if each.schedule is not None
        }
        entries = {
            name: _rendered(each, weights, schedules, {}) for name, each in self._entries.items()
        }
        own = _as_json(own or {})
        digest = _digest(json.dumps([*entries.values(), *([own] if own else [])], sort_keys=True))
        self._base = _Configuration(
            0, digest, weights, schedules, {}, frozenset(), entries, own, {}
        )
        self._parent: RewardRuntime | None = None
        self._forget_changes()

    def _forget_changes(self) -> None:
        self._changes = RewardPatch()
        self._number, self._digest = 0, ""
        self._configuration = self._base

    def fork(self) -> RewardRuntime:
        """Return the runtime of a session: it follows this one, except for its own changes."""
        other = object.__new__(RewardRuntime)
        other.__dict__.update(
            self.__dict__,
            progress=self.progress.fork(),
            audit=deque(maxlen=MAX_CHANGES),
            _lock=threading.RLock(),
            _base=self._current(),
            _parent=self,
        )
        other._forget_changes()
        return other

    # Scoring -----------------------------------------------------------------------------------

    def apply(self, rubric: Rubric, *, episode: int | None = None) -> Applied:
        """Configure a tree for an episode that begins.

        Weights that were never changed stay as the tree has them.

        Args:
            rubric: The tree.
            episode: The number of the episode, if it was counted already.

        Returns:
            The number of the episode, and how to undo the configuration if it doesn't begin.

        Raises:
            RewardConfigError: The tree differs from the prototype, and lacks a field. It is
                unchanged.
        """
        return self.begin(episode).apply(rubric, self.observe)

    def begin(self, episode: int | None = None) -> EpisodeConfiguration:
        """Return the configuration of an episode that begins, and count it.

        Args:
            episode: The number of the episode, if it was counted already.
        """
        configuration, progress = self._current(), self.progress
        episode = progress.begin() if episode is None else episode
        weights = {**configuration.weights, **progress.stage_weights()}
        factors = progress.factors(configuration.schedules, episode)
        return EpisodeConfiguration(
            episode,
            {name: weights[name] for name in configuration.reweighted | self._staged},
            factors if configuration.schedules else None,
            configuration.tuned,
            self._prototype.describe(weights, factors, configuration.tuned).fingerprint,
            configuration.own_changes,
            progress.curriculum is not None,
        )

    def observe(self, means: Mapping[str, float]) -> None:
        """Take the mean of each component over an episode that ended."""
        if self.progress.curriculum is not None:
            self.progress.curriculum.observe(means)

    def own(self, change: Any = None) -> dict[str, Any]:
        """Return what was changed of the environment's own configuration, with another change."""
        present = self._current()
        _, changed = split_own(change if isinstance(change, Mapping) else {}, present.own)
        return {**present.own_changes, **changed}

    # Rendering ---------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The version of the configuration, with which a client detects changes of others."""
        return self._current().version

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as a file has it, with the tree and its fingerprint.

        The weights of ``tree`` are those of an episode that would begin now: with schedules and the
        stage of the curriculum. The result is a copy.
        """
        return json.loads(json.dumps(self._rendered()))  # type: ignore[no-any-return]

    def _rendered(self) -> dict[str, Any]:
        configuration, progress = self._current(), self.progress
        description = self._prototype.describe(
            {**configuration.weights, **progress.stage_weights()},
            progress.factors(configuration.schedules, progress.episode),
            configuration.tuned,
        )
        return {
            "schema_version": SCHEMA_VERSION,
            **{key: [configuration.entries[name] for name in self._lists[key]] for key in LISTS},
            "tree": description.tree,
            "fingerprint": description.fingerprint,
            "version": configuration.version,
            "progress": progress.to_dict(),
            **self._rest,
            **configuration.own,
        }

    def _current(self) -> _Configuration:
        base = self._parent._current() if self._parent is not None else self._base
        if base is not self._base:  # it was changed for all sessions
            with self._lock:
                self._base = base
                self._configuration = self._revised(self._changes)
        return self._configuration

    def _revised(self, changes: RewardPatch) -> _Configuration:
        """The base with all changes of this runtime."""
        base = self._base
        weights = {**base.weights, **changes.weights}
        schedules = {**base.schedules, **changes.schedules}
        tuned = {**base.tuned, **changes.tuned}
        entries = {
            name: _rendered(self._entries[name], weights, schedules, tuned)
            for name in changes.entries
        }
        return _Configuration(
            base.number + self._number,
            _digest(base.digest + self._digest) if self._digest else base.digest,
            weights,
            schedules,
            tuned,
            base.reweighted.union(changes.weights),
            {**base.entries, **entries},
            {**base.own, **changes.own},
            {**base.own_changes, **changes.own},
        )

    # Changing ----------------------------------------------------------------------------------

    def update(
        self, change: Any, *, version: str | Collection[str] | None = None, by: str = ""
    ) -> dict[str, Any]:
        """Change the configuration of the episodes that begin from now on.

        Args:
            change: A part of the configuration, ``{"per_turn": [{"name": "style", "weight": 2}]}``,
                or ``{"weights": {"style": 0.5}}``, ``{"schedules": {"style": …}}``; and
                ``training_step`` and ``episode``, which schedules count. The result of `to_dict`
                may be sent back with changes.
            version: The version, or several, that the change is based on; it may also be in the
                change. If the current version is another, nothing is changed.
            by: Who makes the change; it may also be in the change.

        Returns:
            ``{"status": "ok", "config": …}`` with the result of `to_dict`, and ``"change"``: its
            entry in `audit`, None if nothing changed.

        Raises:
            RewardConfigError: Something in it can't be done; ``problems`` lists everything.
            ConfigConflictError: The configuration was changed since that version.
        """
        with self._lock:
            configuration = self._current()
            patch = read_patch(
                change,
                entries=self._entries,
                rendered=configuration.entries,
                render=self._rendered,
                own=configuration.own,
            )
            for sent in (version, patch.sent.version):
                _check_version(sent, configuration.version)
            problems = [*patch.problems, *self._refused(configuration, patch)]
            if problems:
                message = f"nothing was changed: {'; '.join(problems)}"
                raise RewardConfigError(message, problems=problems)
            self.progress.report(training_step=patch.sent.training_step, episode=patch.sent.episode)
            logged = self._commit(configuration, patch, patch.sent.by or by)
            return {"status": "ok", "config": self.to_dict(), "change": logged}

    def _refused(self, configuration: _Configuration, patch: RewardPatch) -> list[str]:
        """The values of tunable fields that the tree refuses, a line each."""
        if not patch.tuned:
            return []
        try:
            self._prototype.check({**configuration.tuned, **patch.tuned})
        except RewardConfigError as error:
            split = [problem.partition(": ") for problem in error.problems]
            places = {path: place_text(place) for path, place in patch.places.items()}
            return [f"{places.get(path, path)}: {message}" for path, _, message in split]
        return []

    def _commit(
        self, configuration: _Configuration, patch: RewardPatch, by: str
    ) -> dict[str, Any] | None:
        if not patch.entries and not patch.own:
            return None
        changes = self._differences(configuration, patch)
        # An unchanged value counts too: a session keeps it when it is changed for all.
        self._changes = self._changes.merged(patch)
        if changes:
            self._number += 1
            self._digest = _digest(f"{self._digest}{changes}")
        self._configuration = self._revised(self._changes)
        if not changes:
            return None
        logged = {
            "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "by": by,
            "version": self._configuration.version,
            "changes": changes,
        }
        self.audit.append(logged)
        logger.info("the configuration was changed by %s: %s", by or "an unnamed caller", changes)
        return logged

    def _differences(
        self, configuration: _Configuration, patch: RewardPatch
    ) -> list[dict[str, Any]]:
        """The values that a patch changes, before and after."""
        found = [(key, configuration.own[key], value) for key, value in patch.own.items()]
        for name, weight in patch.weights.items():
            what = f"{self._entries[name].list}.{name}.weight"
            found.append((what, configuration.weights[name], weight))
        for name, schedule in patch.schedules.items():
            before = configuration.schedules.get(name)
            specs = [each and each.to_spec() for each in (before, schedule)]
            found.append((f"{self._entries[name].list}.{name}.schedule", specs[0], specs[1]))
        for path, value in patch.tuned.items():
            found.append((path, configuration.tuned.get(path, self._prototype.base[path]), value))
        private = {
            path
            for entry in (self._entries.values() if patch.tuned else ())
            for key, path in entry.tunable.items()
            if entry.hides(key)
        }
        return [
            {"what": what, "from": PRIVATE, "to": PRIVATE}
            if what in private
            else {"what": what, "from": _brief(before), "to": _brief(after)}
            for what, before, after in found
            if before != after
        ]


def _check_version(sent: str | Collection[str] | None, present: str) -> None:
    accepted = [sent] if isinstance(sent, str) else sent
    if accepted is not None and present not in accepted:
        sent = ", ".join(accepted)
        raise ConfigConflictError(
            f"the change is based on version {sent!r:.100}, but the current version is "
            f"{present!r}; get the configuration again, and change that",
            sent=sent,
            present=present,
        )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _as_json(value: Any) -> Any:
    """A value as JSON can represent it; infinities and NaN by their names."""
    text = json.dumps(to_jsonable_python(value, fallback=str))
    return json.loads(text, parse_constant=str)


def _brief(value: Any) -> Any:
    """A value for the log: a long one as the beginning of its text."""
    value = _as_json(value)
    text = json.dumps(value)
    return value if len(text) <= MAX_LOGGED else f"{text[:MAX_LOGGED]}…"


# Entries -------------------------------------------------------------------------------------


def _entries(prototype: _Prototype, config: RewardConfig | None) -> dict[str, Entry]:
    """The entries of a configuration, or of a tree that was written in code."""
    rubric = prototype.rubric
    if config is not None:
        entries = [
            _entry(prototype, key, each.name, _rubric_name(each.rubric), each.config, each.private)
            for key in LISTS
            for each in getattr(config, key)
        ]
    elif isinstance(rubric, RubricComposer):
        entries = [
            _entry(prototype, LISTS[name in rubric.episode_end], name, *_in_code(child))
            for name, child in rubric.named_children()
        ]
    else:
        entries = [_entry(prototype, LISTS[0], "", *_in_code(rubric))]
    return {each.name: each for each in entries}


def _entry(
    prototype: _Prototype,
    key: str,
    path: str,
    rubric: str,
    config: Mapping[str, Any],
    private: Sequence[str] = (),
) -> Entry:
    """The entry of the rubric at a path: a component, or "" for a tree without components."""
    prefix = f"{path}." if path else ""
    tunable = {
        each.removeprefix(prefix): each for each in prototype.base if each.startswith(prefix)
    }
    values = {**config, **{name: prototype.base[each] for name, each in tunable.items()}}
    entry = Entry(path or "reward", key, rubric, bool(path), tunable, frozenset(private), {})
    disclosed = {name: _as_json(each) for name, each in values.items() if not entry.hides(name)}
    return replace(entry, config=disclosed)


def _rendered(
    entry: Entry,
    weights: Mapping[str, float],
    schedules: Mapping[str, Schedule | None],
    tuned: Mapping[str, Any],
) -> dict[str, Any]:
    config = dict(entry.config)
    for key, path in entry.tunable.items() if tuned else ():
        if path in tuned and not entry.hides(key):
            config[key] = _as_json(tuned[path])
    rendered = {
        "name": entry.name,
        "rubric": entry.rubric,
        "weight": weights.get(entry.name, 1.0),
        "config": config,
    }
    schedule = schedules.get(entry.name)
    return rendered if schedule is None else {**rendered, "schedule": schedule.to_spec()}


def _rubric_name(rubric: Any) -> str:
    if isinstance(rubric, str):
        return rubric
    return getattr(rubric, "__qualname__", None) or name_of(type(rubric))


def _in_code(rubric: Rubric) -> tuple[str, dict[str, Any]]:
    """The class of a tree that was written in code, and its weights and thresholds.

    Attributes of the author's own classes are left out, as one may be a key, or the answer that the
    agent is to find.
    """
    return name_of(type(rubric)), {
        f"{path}.{name}" if path else name: getattr(node, name)
        for path, node in [("", rubric), *rubric.named_rubrics()]
        if node._is_container
        for kind in reversed(type(node).__mro__)
        if kind.__module__.partition(".")[0] == "guerdon"
        for name in kind.__dict__.get("state_names", ())
        if name not in node._measured
    }


def _rendered_rest(config: RewardConfig | None, rubric: Rubric) -> dict[str, Any]:
    """What a rendered configuration has beside its entries, without secrets."""
    if config is None:
        return {"normalize": rubric.normalize} if isinstance(rubric, RubricComposer) else {}
    services = {name: each.public() for name, each in config.mcp_services.items()}
    rest = {"normalize": config.normalize, "mcp_services": services, **config.curriculum_dict()}
    return _as_json(rest)  # type: ignore[no-any-return]


# Descriptions --------------------------------------------------------------------------------


class _Description(NamedTuple):
    fingerprint: str
    tree: list[dict[str, Any]]


class _Prototype:
    """A tree on which changes are tried, described and fingerprinted before any other has them.

    Attributes:
        rubric: The tree.
        base: The initial values of its tunable fields, by dotted name.
    """

    def __init__(self, rubric: Rubric) -> None:
        self.rubric = rubric
        fields = tunable_fields(rubric)
        if isinstance(rubric, RubricComposer):
            fields.pop("weights", None)  # which the entries contain
        self.base = {path: copy.deepcopy(each.value) for path, each in fields.items()}
        self._lock = threading.RLock()
        self._tuned: Mapping[str, Any] = {}  # its current values
        self._source: tuple[FingerprintParts, list[dict[str, Any]]] | None = None
        self._descriptions: dict[bytes, _Description] = {}

    def check(self, tuned: Mapping[str, Any]) -> None:
        """Try values of tunable fields.

        Raises:
            RewardConfigError: The tree refuses them; ``problems`` has a line each.
        """
        with self._lock:
            if tuned != self._tuned:
                configure(self.rubric, tuned={**self.base, **tuned})
                self._tuned, self._source = tuned, None

    def describe(
        self, weights: Mapping[str, float], factors: Mapping[str, float], tuned: Mapping[str, Any]
    ) -> _Description:
        """Describe the tree with a configuration.

        A former description is returned at once, even while a change is tried.
        """
        text = repr((weights, sorted(factors.items()), sorted(tuned.items())))
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        found = self._descriptions.get(key)
        if found is None:
            with self._lock:
                self.check(tuned)
                found = self._descriptions[key] = self._described(weights, factors)
                if len(self._descriptions) > MAX_DESCRIPTIONS:
                    self._descriptions.pop(next(iter(self._descriptions)))
        return found

    def _described(
        self, weights: Mapping[str, float], factors: Mapping[str, float]
    ) -> _Description:
        rubric = self.rubric
        configure(rubric, weights=weights, factors=factors)
        if self._source is None:
            replaced = ("weights", "factors") if isinstance(rubric, RubricComposer) else ()
            parts = FingerprintParts(rubric, *replaced)
            self._source = parts, _as_json(list(describe(rubric)))
        parts, rows = self._source
        if not isinstance(rubric, RubricComposer):
            return _Description(parts.digest(), rows)
        # Only the first row and the weights of the components depend on weights and factors.
        root = _as_json(next(describe(rubric)))
        effective = _as_json(rubric.effective_weights)
        rows = [
            {**row, "weight": effective[row["path"]]} if row["path"] in effective else row
            for row in rows[1:]
        ]
        digest = parts.digest(weights=rubric.weights, factors=rubric.factors)
        return _Description(digest, [root, *rows])
