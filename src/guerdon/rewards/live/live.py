"""`LiveReward`: the configuration of a reward that runs, and its changes."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from guerdon.errors import ConfigConflictError, ConfigUpdateError
from guerdon.rewards.composer import RubricComposer
from guerdon.rewards.config.config import RewardConfig
from guerdon.rewards.config.versions import SCHEMA_VERSION
from guerdon.rewards.live.change import Change, Present, read_change
from guerdon.rewards.live.progress import EpisodeMeans, Progress
from guerdon.rewards.live.prototype import Prototype, Settings, arrange
from guerdon.rewards.live.telling import entries_of, tell_entry, tell_rest
from guerdon.rewards.schedules.curriculum import Curriculum
from guerdon.rubrics.rubric import Rubric

__all__ = ["LiveReward"]

logger = logging.getLogger("guerdon.rewards")

# How many changes are remembered.
KEPT = 1000


class LiveReward:
    """The configuration of a reward that runs, and its changes.

    Many trees may score by one: each takes it over when its next episode begins (`apply`), so
    that an episode is scored by one configuration from start to end. Weights, schedules and the
    fields that a rubric declares as `Rubric.tunable` may be changed, by name; a change is taken
    whole or not at all, and is remembered.

    Example:
        >>> from guerdon import LiveReward, RubricComposer
        >>> def make():
        ...     return RubricComposer({"brief": lambda a, o: 1.0 / len(a)}, {"brief": 1.0})
        >>> live, rubric = LiveReward(make()), make()
        >>> answer = live.update({"weights": {"brief": 0.5}}, by="ann")
        >>> rubric("abcd", None)
        0.25
        >>> live.apply(rubric)  # which an environment's reset does
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
            for which in ("per_turn", "episode_end")
            for each in getattr(config, which, ())
            if each.schedule is not None
        }
        self._number = 0
        self._settings = Settings(weights, schedules, {})

    def fork(self) -> LiveReward:
        """One that begins as this one is, and changes by itself: that of a session."""
        other = object.__new__(LiveReward)
        other.__dict__.update(self.__dict__, _lock=threading.RLock())
        other.audit = deque(self.audit, maxlen=KEPT)
        return other

    # Scoring by it -----------------------------------------------------------------------------

    def apply(self, rubric: Rubric) -> None:
        """Have a tree score by the present configuration, in an episode that begins.

        Raises:
            ConfigUpdateError: The tree isn't like the prototype, and has no such field.
        """
        settings, progress = self._settings, self.progress
        episode = progress.begin()
        weights = progress.weights(settings.weights)
        factors = progress.factors(settings.schedules, episode)
        arrange(rubric, weights, factors, settings.tuned)
        marks = rubric.__dict__
        marks["_scored_by"] = self._prototype.fingerprint(weights, factors, settings.tuned)
        curriculum = progress.curriculum
        marks["_watch"] = EpisodeMeans(curriculum.observe) if curriculum is not None else None

    # Telling -----------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """What the configuration is known by, to change it only where nobody else has."""
        with self._lock:
            text = json.dumps([self._number, self._told_entries()], sort_keys=True)
            digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
            return f"{self._number}-{digest}"

    def told(self) -> dict[str, Any]:
        """The configuration in the shape of the file, with the tree and its fingerprint.

        The weights of ``tree`` are those of an episode that would begin now: as schedules and the
        stage of the curriculum make them.
        """
        with self._lock:
            settings, progress = self._settings, self.progress
            arranged = (
                progress.weights(settings.weights),
                progress.factors(settings.schedules, progress.episode),
                settings.tuned,
            )
            told: dict[str, Any] = {
                "schema_version": SCHEMA_VERSION,
                **self._told_entries(),
                "tree": self._prototype.tree(*arranged),
                "fingerprint": self._prototype.fingerprint(*arranged),
                "version": self.version,
                "progress": progress.told(),
            }
            return told | (tell_rest(self._config) if self._config is not None else {})

    def _told_entries(self) -> dict[str, list[dict[str, Any]]]:
        return {
            which: [
                tell_entry(each, self._prototype, self._settings)
                for each in self._entries
                if each.list == which
            ]
            for which in ("per_turn", "episode_end")
        }

    # Changing ----------------------------------------------------------------------------------

    def update(self, change: Any, *, version: str | None = None, by: str = "") -> dict[str, Any]:
        """Change the configuration, for the episodes that begin after it.

        Args:
            change: A part of the file's shape: ``{"per_turn": [{"name": "style", "weight": 0.5}]}``,
                or ``{"weights": {"style": 0.5}}``, ``{"schedules": {"style": …}}``; and
                ``training_step`` and ``episode``, which schedules go by.
            version: The version that the change was made to; it may also stand in the change.
                Where it isn't the present one, nothing is changed.
            by: Who asks; it may also stand in the change.

        Returns:
            ``{"status": "ok", "config": …}`` with what `told` gives, and ``"change"``: what is
            remembered of it, None where nothing was different.

        Raises:
            ConfigUpdateError: Something in it can't be done; `problems` lists everything.
            ConfigConflictError: Somebody else has changed the configuration since.
        """
        with self._lock:
            present = self._present()
            read = read_change(change, present)
            self._check_version(read.version or version)
            problems = list(read.problems)
            refused = self._prototype.check({**self._settings.tuned, **read.tuned})
            problems += [_placed(line, read.where) for line in refused]
            if problems:
                raise ConfigUpdateError(
                    "nothing was changed: " + "; ".join(problems), problems=problems
                )
            self.progress.report(training_step=read.training_step, episode=read.episode)
            remembered = self._take(read, read.by or by)
            return {"status": "ok", "config": self.told(), "change": remembered}

    def _present(self) -> Present:
        return Present(
            told=self.told(),
            lists={each.name: each.list for each in self._entries},
            weighed=frozenset(each.name for each in self._entries if each.weighed),
            tunable=frozenset(self._prototype.fields),
            paths={each.name: each.path for each in self._entries},
        )

    def _check_version(self, sent: str | None) -> None:
        present = self.version
        if sent is not None and sent != present:
            raise ConfigConflictError(
                f"the change was made to version {sent!r}, but the present one is {present!r}; "
                "get the configuration again, and change that",
                sent=sent,
                present=present,
            )

    def _take(self, read: Change, by: str) -> dict[str, Any] | None:
        """Make the change, and remember it."""
        before = self._told_entries()
        old = self._settings
        schedules = {**old.schedules, **read.schedules}
        self._settings = Settings(
            {**old.weights, **read.weights},
            {name: each for name, each in schedules.items() if each is not None},
            {**old.tuned, **read.tuned},
        )
        changes = _differences(before, self._told_entries())
        changes += [
            _difference(path, {**self._prototype.base, **old.tuned}[path], value)
            for path, value in read.tuned.items()
            if {**self._prototype.base, **old.tuned}[path] != value
        ]
        if not changes:
            self._settings = old
            return None
        self._number += 1
        remembered = {
            "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "by": by,
            "version": self.version,
            "changes": changes,
        }
        self.audit.append(remembered)
        logger.info("the configuration was changed by %s: %s", by or "somebody", changes)
        return remembered


def _placed(line: str, where: Mapping[str, str]) -> str:
    """A problem of a tunable field, with where it stood in what was sent."""
    path, colon, said = line.partition(": ")
    return f"{where.get(path, path)}{colon}{said}"


def _differences(
    before: Mapping[str, list[dict[str, Any]]], after: Mapping[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Which weights and schedules are different, each with what it was and is."""
    found = []
    for which, entries in after.items():
        for was, now in zip(before[which], entries, strict=True):
            where = f"{which}.{now['name']}"
            for key in ("weight", "schedule"):
                if was.get(key) != now.get(key):
                    found.append(_difference(f"{where}.{key}", was.get(key), now.get(key)))
    return found


def _difference(what: str, was: Any, now: Any) -> dict[str, Any]:
    return {"what": what, "from": was, "to": now}
