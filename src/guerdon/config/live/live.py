"""`LiveReward`: the configuration of a reward that runs, and its changes."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from guerdon.config.curriculum import Curriculum
from guerdon.config.live.arranging import arrange
from guerdon.config.live.change import LISTS, Change, Present, read_change
from guerdon.config.live.progress import EpisodeMeans, Progress
from guerdon.config.live.prototype import Prototype, Settings
from guerdon.config.live.telling import as_json, entries_of, tell_entry, tell_rest
from guerdon.config.schema import SCHEMA_VERSION, RewardConfig
from guerdon.errors import ConfigConflictError, RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric

__all__ = ["LiveReward"]

logger = logging.getLogger("guerdon.config")

# How many changes are remembered.
KEPT = 1000
# How many characters of a value are remembered, and what is, of one that isn't told.
MAX_REMEMBERED = 1000
PRIVATE = "(private)"

# What an episode sets on the tree that it is scored by.
MARKS = ("_scored_by", "_is_alike", "_watch")


class Changed(NamedTuple):
    """What was changed since the beginning.

    Attributes:
        number: How often.
        settings: What is as it was changed.
    """

    number: int = 0
    settings: Settings = Settings()


class Applied(NamedTuple):
    """That a tree scores by a configuration.

    Attributes:
        episode: The number of the episode that begins.
        undo: Has the tree score again as before.
    """

    episode: int
    undo: Callable[[], Any]


class LiveReward:
    """The configuration of a reward that runs, and its changes.

    Many trees may score by one: each takes it over when its next episode begins (`apply`), so
    that an episode is scored by one configuration from start to end. Weights, schedules and the
    fields that a rubric declares as `Rubric.tunable` may be changed, by name; a change is taken
    whole or not at all, and is remembered.

    Example:
        >>> from guerdon import RubricComposer
        >>> from guerdon.config import LiveReward
        >>> def make():
        ...     return RubricComposer({"brief": lambda a, o: 1.0 / len(a)}, {"brief": 1.0})
        >>> live, rubric = LiveReward(make()), make()
        >>> answer = live.update({"weights": {"brief": 0.5}}, by="ann")
        >>> rubric("abcd", None)
        0.25
        >>> applied = live.apply(rubric)  # which an environment's reset does
        >>> rubric("abcd", None)
        0.125
        >>> answer["change"]["changes"]
        [{'what': 'per_turn.brief.weight', 'from': 1.0, 'to': 0.5}]

    Args:
        prototype: A tree like those that score, of which nobody else makes use.
        config: The configuration that it was made from; None of a tree that was written in code.

    Attributes:
        audit: The latest 1,000 changes: when, by whom, and each thing with what it was and is.
        progress: How far training is; what a session changes for itself shares it.
    """

    def __init__(self, prototype: Rubric, *, config: RewardConfig | None = None) -> None:
        stages = config.curriculum if config is not None else None
        self.progress = Progress(Curriculum(stages) if stages else None)
        self.audit: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._lock = threading.RLock()
        self._config = config
        self._prototype = Prototype(prototype)
        self._entries = entries_of(self._prototype, config)
        weights = prototype.weights if isinstance(prototype, RubricComposer) else {}
        schedules = {
            each.name: each.schedule
            for which in LISTS
            for each in getattr(config, which, ())
            if each.schedule is not None
        }
        self._base = Settings(weights, schedules)
        self._common: LiveReward | None = None
        self._changed = Changed()

    def fork(self) -> LiveReward:
        """That of a session: as this one, but for what is changed in it alone."""
        other = object.__new__(LiveReward)
        other.__dict__.update(
            self.__dict__,
            progress=self.progress.fork(),
            audit=deque(maxlen=KEPT),
            _lock=threading.RLock(),
            _common=self,
            _changed=Changed(),
        )
        return other

    # Scoring by it -----------------------------------------------------------------------------

    def apply(self, rubric: Rubric, *, episode: int | None = None) -> Applied:
        """Have a tree score by the present configuration, in an episode that begins.

        What nobody has changed stays as the tree has it, whose weights may be its own.

        Args:
            rubric: The tree.
            episode: The number of the episode, where it has been counted already.

        Returns:
            What was done, to be taken back where the episode doesn't begin after all.

        Raises:
            RewardConfigError: The tree isn't like the prototype, and has no such field. It is as
                it was.
        """
        changes, progress = self._changes().settings, self.progress
        settings = self._base | changes
        episode = progress.begin() if episode is None else episode
        weights = progress.weights(settings.weights)
        factors = progress.factors(settings.schedules, episode)
        marks = rubric.__dict__
        rubric._look()
        before = {name: marks.get(name) for name in MARKS}
        touched = {*changes.weights, *progress.staged()}
        undo = arrange(
            rubric,
            {name: weights[name] for name in weights if name in touched},
            factors if settings.schedules else None,
            changes.tuned,
        )
        fingerprint = self._prototype.look(weights, factors, settings.tuned).fingerprint
        alike = before["_is_alike"]
        if alike is None:  # a tree may be made, or have been changed, in a way of its own
            alike = rubric.fingerprint() == fingerprint
        marks["_is_alike"] = alike
        marks["_scored_by"] = fingerprint if alike else None  # which is found out where it is told
        curriculum = progress.curriculum
        marks["_watch"] = EpisodeMeans(curriculum.observe) if curriculum is not None else None
        return Applied(episode, lambda: (undo(), marks.update(before)))

    # Telling -----------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """What the configuration is known by, to change it only where nobody else has."""
        return self._version(self._changes())

    def told(self) -> dict[str, Any]:
        """The configuration in the shape of the file, with the tree and its fingerprint.

        The weights of ``tree`` are those of an episode that would begin now: as schedules and the
        stage of the curriculum make them.
        """
        changes, progress = self._changes(), self.progress
        settings = self._base | changes.settings
        look = self._prototype.look(
            progress.weights(settings.weights),
            progress.factors(settings.schedules, progress.episode),
            settings.tuned,
        )
        told: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            **self._told_entries(settings),
            "tree": as_json(look.tree),
            "fingerprint": look.fingerprint,
            "version": self._version(changes),
            "progress": progress.told(),
        }
        return told | tell_rest(self._config, self._prototype.rubric)

    def _changes(self) -> Changed:
        """What was changed, for all and for this session, at one moment."""
        if self._common is None:
            return self._changed
        common, own = self._common._changes(), self._changed
        return Changed(common.number + own.number, common.settings | own.settings)

    def _version(self, changes: Changed) -> str:
        told = self._told_entries(self._base | changes.settings)
        text = json.dumps([changes.number, told], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return f"{changes.number}-{digest}"

    def _told_entries(self, settings: Settings) -> dict[str, list[dict[str, Any]]]:
        return {
            which: [
                tell_entry(each, self._prototype, settings)
                for each in self._entries
                if each.list == which
            ]
            for which in LISTS
        }

    # Changing ----------------------------------------------------------------------------------

    def update(
        self, change: Any, *, version: str | Collection[str] | None = None, by: str = ""
    ) -> dict[str, Any]:
        """Change the configuration, for the episodes that begin after it.

        Args:
            change: A part of the file's shape: ``{"per_turn": [{"name": "style", "weight": 2}]}``,
                or ``{"weights": {"style": 0.5}}``, ``{"schedules": {"style": …}}``; and
                ``training_step`` and ``episode``, which schedules go by. What `told` gave may be
                sent back with what is to be changed.
            version: The version that the change was made to, or several; it may also stand in the
                change. Where the present one is another, nothing is changed.
            by: Who asks; it may also stand in the change.

        Returns:
            ``{"status": "ok", "config": …}`` with what `told` gives, and ``"change"``: what is
            remembered of it, None where nothing was different.

        Raises:
            RewardConfigError: Something in it can't be done; `problems` lists everything.
            ConfigConflictError: Somebody else has changed the configuration since.
        """
        with self._lock:
            read = read_change(change, self._present())
            for sent in (version, read.version):
                self._check_version(sent)
            problems = [*read.problems, *self._refused(read)]
            if problems:
                raise RewardConfigError(
                    "nothing was changed: " + "; ".join(problems), problems=problems
                )
            self.progress.report(training_step=read.training_step, episode=read.episode)
            remembered = self._take(read, read.by or by)
            return {"status": "ok", "config": self.told(), "change": remembered}

    def _refused(self, read: Change) -> list[str]:
        """What the tree refuses of a change, a line each."""
        if not read.tuned:
            return []
        try:
            self._prototype.check({**self._changes().settings.tuned, **read.tuned})
        except RewardConfigError as error:
            return [_placed(line, read.where) for line in error.problems]
        return []

    def _present(self) -> Present:
        return Present(
            told=self.told(),
            lists={each.name: each.list for each in self._entries},
            weighed=frozenset(each.name for each in self._entries if each.weighed),
            tunable=frozenset(self._prototype.fields),
            paths={each.name: each.path for each in self._entries},
        )

    def _check_version(self, sent: str | Collection[str] | None) -> None:
        present = self.version
        accepted = [sent] if isinstance(sent, str) else sent
        if accepted is not None and present not in accepted:
            told = ", ".join(accepted)
            raise ConfigConflictError(
                f"the change was made to version {told!r:.100}, but the present one is "
                f"{present!r}; get the configuration again, and change that",
                sent=told,
                present=present,
            )

    def _take(self, read: Change, by: str) -> dict[str, Any] | None:
        """Make the change, and remember it."""
        old = self._base | self._changes().settings
        taken = Settings(read.weights, read.schedules, read.tuned)
        changes = self._differences(old, old | taken)
        settings = self._changed.settings | taken
        # What is the same stays in what was changed: for a session it is its own from now on.
        self._changed = Changed(self._changed.number + bool(changes), settings)
        if not changes:
            return None
        remembered = {
            "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "by": by,
            "version": self.version,
            "changes": changes,
        }
        self.audit.append(remembered)
        logger.info("the configuration was changed by %s: %s", by or "somebody", changes)
        return remembered

    def _differences(self, old: Settings, new: Settings) -> list[dict[str, Any]]:
        """What is different, each thing with what it was and is."""
        before, after = self._told_entries(old), self._told_entries(new)
        found = []
        for which in LISTS:
            for was, now in zip(before[which], after[which], strict=True):
                for key in ("weight", "schedule"):
                    if was.get(key) != now.get(key):
                        what = f"{which}.{now['name']}.{key}"
                        found.append(_difference(what, was.get(key), now.get(key)))
        hidden = {
            path
            for entry in self._entries
            for path in new.tuned
            if _is_below(path, entry.path) and entry.hides(path[len(entry.path) :].lstrip("."))
        }
        for path, value in new.tuned.items():
            was = old.tuned.get(path, self._prototype.base[path])
            if was != value:
                told = (PRIVATE, PRIVATE) if path in hidden else (as_json(was), as_json(value))
                found.append(_difference(path, *told))
        return found


def _placed(line: str, where: Mapping[str, str]) -> str:
    """A problem of a tunable field, with where it stood in what was sent."""
    path, colon, said = line.partition(": ")
    return f"{where.get(path, path)}{colon}{said}"


def _is_below(path: str, above: str) -> bool:
    return not above or path.startswith(f"{above}.")


def _difference(what: str, was: Any, now: Any) -> dict[str, Any]:
    return {"what": what, "from": _brief(was), "to": _brief(now)}


def _brief(value: Any) -> Any:
    """A value as it is remembered: what is long, as the beginning of its text."""
    text = json.dumps(value, default=str)
    return value if len(text) <= MAX_REMEMBERED else f"{text[:MAX_REMEMBERED]}…"
