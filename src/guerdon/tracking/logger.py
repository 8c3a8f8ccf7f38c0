"""`RewardLogger`: logs rewards, components and configuration changes to experiment trackers."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from guerdon._validation import check_choice, check_integer, check_seconds
from guerdon.errors import TrackerError
from guerdon.tracking.log import LogWriter, RewardLog, open_run, unsent_runs
from guerdon.tracking.records import (
    IDS,
    LAST_STEP,
    NOT_GIVEN,
    checked_id,
    checked_scores,
    checked_step,
    checked_weights,
    config_rows,
)
from guerdon.tracking.sending import Sender, TrackerStatus
from guerdon.tracking.trackers import Backend, trackers_of

__all__ = ["RewardLogger"]

logger = logging.getLogger(__name__)


class RewardLogger:
    """Logs rewards to a file and to experiment trackers, without waiting for them.

    `log_step` puts a record in a queue. A thread appends the queue to the run's log,
    ``rewards.jsonl``, every tenth of a second, and a thread for each tracker sends what is in the
    log. So a tracker that is down or hangs delays neither training nor the other trackers, and its
    records are sent when it works again: by this process, or by the next logger with the same
    `path` and `run_name`. A tracker that is added to an existing run gets the whole log. A process
    that is killed loses what it logged within the last second at most; a machine that stops, what
    its disk hadn't stored yet, about a second too.

    The metrics are ``reward/total``, ``reward/{name}``, ``reward/weights/{name}``,
    ``reward/invalid/{name}`` and ``config/updates``. With `env_id`, records of several
    environments never overwrite each other; the class of each tracker documents how it shows them.

    `close` (or ``with``) waits for the trackers; a process that ends without it does so too, but
    in Python 3.12 wandb can't be opened any more at that point, and what was logged in the first
    second then stays in the log.

    If the queue contains `queue_size` records, the caller waits until the log has accepted some. If
    the log has reached `max_log_bytes`, or the disk can't be written and the queue is full, new
    records are lost: they are counted in `status`, logged as an error, and reported by `close`.
    With ``on_full="raise"``, `log_step` raises instead.

    A logger belongs to the process that created it: in a forked process `log_step` raises, and it
    can't be pickled; create one there, with the same `path` and `run_name` for the same run.
    Several processes may log to one run; one of them sends the records of all. Runs in `path` with
    records that were never sent are reported when a logger is created.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from guerdon.tracking import RewardLogger
        >>> with RewardLogger("jsonl", path="logs", run_name="first") as logger:
        ...     logger.log_step(1, 0, 0.7, {"tests": 1.0, "style": 0.4}, "env-0")
        ...     logger.log_step(2, 0, None, {"tests": 1.0, "style": None}, "env-0")
        >>> for line in Path("logs/first/rewards.jsonl").read_text().splitlines():
        ...     row = json.loads(line)
        ...     print(row["step"], row["reward"], row["components"], row.get("invalid"))
        1 0.7 {'tests': 1.0, 'style': 0.4} None
        2 None {'tests': 1.0} {'style': 'failed'}

    Args:
        backend: ``"wandb"``, ``"tensorboard"``, ``"mlflow"``, ``"console"``, ``"jsonl"`` (the log
            alone), a name that a package registers under the entry points ``guerdon.trackers``, a
            `TrackerBackend`, or several of these.
        path: The folder of the runs, each of which has a folder of its own.
        run_name: The run; by default a new one, named after the time.
        project: The project, or in MLflow the experiment, that the run belongs to.
        queue_size: How many records may wait in memory, at least 1.
        max_log_bytes: The size of the log from which new records are lost.
        on_full: ``"drop"`` or ``"raise"``.
        retry_s: Seconds before a failed tracker is retried; each pause is twice as long as the
            last, up to 30 s.
        **options: Arguments of the named tracker, such as ``mode="offline"``.

    Raises:
        InvalidArgumentError: An argument is invalid.
        TrackerError: The run's folder can't be used.
        MissingExtraError: A tracker's package isn't installed; the message names the extra.
    """

    def __init__(
        self,
        backend: Backend = "wandb",
        *,
        path: str | os.PathLike[str] = "reward-logs",
        run_name: str | None = None,
        project: str = "guerdon",
        queue_size: int = 10_000,
        max_log_bytes: int = 1 << 34,
        on_full: str = "drop",
        retry_s: float = 0.5,
        **options: Any,
    ) -> None:
        check_integer("queue_size", queue_size, low=1)
        check_integer("max_log_bytes", max_log_bytes, low=1)
        check_seconds("retry_s", retry_s)
        check_choice("on_full", on_full, ("drop", "raise"))
        trackers = trackers_of(backend, options)
        self.run = open_run(path, name=run_name, project=project)
        others = [name for name in unsent_runs(self.run.folder.parent) if name != self.run.name]
        try:
            self._log = RewardLog(self.run.folder, max_bytes=max_log_bytes)
        except OSError as error:
            raise TrackerError(f"can't write the log of the run: {error}") from error
        self._refusal: str | None = None
        self._raises = on_full == "raise"
        self._step = self._updates = 0
        self._closing, self._counting = threading.Lock(), threading.Lock()
        self._closed, self._process = False, os.getpid()
        self._senders = [
            Sender(tracker, self.run, self._log.path, retry_s=retry_s, on_open=self._close_first)
            for tracker in trackers
        ]
        self._writer = LogWriter(
            self._log, size=queue_size, on_written=self._wake_senders, on_full=self._note_full
        )
        _alive.add(self)
        if others:
            logger.warning(
                "runs %s in %s have records that were never sent; a logger with their run_name "
                "and the same trackers sends them", others, self.run.folder.parent,
            )  # fmt: skip
        atexit.register(self.close)

    # Logging

    def log_step(
        self,
        step: int,
        episode: int | str | None,
        reward: float | None,
        components: Mapping[str, float | None],
        env_id: int | str | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        invalid: Mapping[str, str] | None = None,
        reward_error: str | None = None,
    ) -> None:
        """Log the reward of one step.

        A failure never becomes a number: a reward of None is logged as ``reward/invalid/total``,
        a component of None as ``reward/invalid/{name}``. NaN and infinity are logged in the same
        way. `reward_fields` returns reward, components, weights, invalid and reward_error of an
        observation.

        Args:
            step: The training or environment step, at least 0.
            episode: The episode.
            reward: The total; None if it is invalid.
            components: The components by name; None for one that failed.
            env_id: The environment.
            weights: The weights that the reward was computed with, by name.
            invalid: Why components failed, by name; they need not be in `components`.
            reward_error: Why there is no total.

        Raises:
            InvalidArgumentError: A value has the wrong type; nothing is logged.
            TrackerError: The logger is closed or belongs to another process, or the record is lost
                and ``on_full="raise"``.
        """
        is_step = type(step) is int and 0 <= step <= LAST_STEP
        is_reward = type(reward) is float and reward - reward == 0
        has_more = weights or invalid is not None or reward_error is not None
        if is_step and is_reward and type(components) is dict and not has_more:
            # The fast path for the usual types; infinity minus itself is NaN too.
            for name, value in components.items():
                if type(value) is not float or value - value != 0 or type(name) is not str:
                    break
            else:
                if type(episode) in IDS and type(env_id) in IDS:
                    self._put(
                        step,
                        kind="step",
                        episode=episode,
                        env_id=env_id,
                        reward=reward,
                        components=components.copy(),
                    )
                    return
        scores = checked_scores(reward, components, invalid=invalid, reward_error=reward_error)
        if weights:
            scores["weights"] = checked_weights(weights)
        self._put(
            checked_step(step),
            kind="step",
            episode=checked_id("episode", episode),
            env_id=checked_id("env_id", env_id),
            **scores,
        )

    def log_weights(
        self, step: int, weights: Mapping[str, float], *, env_id: int | str | None = None
    ) -> None:
        """Log the current weights, as a schedule changes them.

        Args:
            step: The training or environment step, at least 0.
            weights: The weights by name.
            env_id: The environment.

        Raises:
            InvalidArgumentError: A weight isn't a finite number, or a value has the wrong type.
            TrackerError: As for `log_step`.
        """
        self._put(
            checked_step(step),
            kind="weights",
            env_id=checked_id("env_id", env_id),
            weights=checked_weights(weights),
        )

    def log_config_update(
        self,
        what: str | Mapping[str, Any] | None,
        *,
        before: object = NOT_GIVEN,
        after: object = NOT_GIVEN,
        who: str | None = None,
        when: float | str | None = None,
        fingerprint: str | None = None,
        step: int | None = None,
    ) -> None:
        """Log an update of the configuration.

        It counts once in ``config/updates``, however many values it changed, each of which is a
        record. A weight (`what` is ``"{name}.weight"``, possibly with a prefix) is also logged as
        ``reward/weights/{name}``.

        Example:
            >>> from guerdon import RewardLogger, RubricComposer
            >>> from guerdon.config import RewardRuntime
            >>> composer = RubricComposer({"brief": lambda a, o: 1 / len(a)}, {"brief": 1})
            >>> runtime = RewardRuntime(composer)
            >>> with RewardLogger("jsonl", path="logs") as logger:
            ...     answer = runtime.update({"weights": {"brief": 0.5}}, by="ann")
            ...     logger.log_config_update(answer["change"], step=7)

        Args:
            what: What an update returns under ``"change"``, or an entry of the audit log; None,
                if nothing changed, logs nothing. Or a string, such as ``"style.weight"``; then
                `before` and `after` are required.
            before: The value before; JSON, or else its repr is logged.
            after: The value after.
            who: The author of the change.
            when: The time, as seconds since 1970 or as a string; by default now.
            fingerprint: The fingerprint of the configuration after it.
            step: The step from which it applies; by default the last that was logged.

        Raises:
            InvalidArgumentError: A value has the wrong type; nothing is logged.
            TrackerError: As for `log_step`.
        """
        rows = config_rows(
            what, before=before, after=after, who=who, when=when, fingerprint=fingerprint
        )
        step = self._step if step is None else checked_step(step)
        with self._counting:
            number = self._updates + 1
            for row in rows:
                row["change"]["number"] = number
                self._put(step, kind="config", **row)
                self._updates = number

    def _put(self, step: int, **row: Any) -> None:
        if self._refusal is not None:
            raise TrackerError(self._refusal)
        self._step = step
        if not self._writer.put({"time": time.time(), "step": step, **row}) and self._raises:
            raise TrackerError(f"the record of step {step} is lost: the log can't be written")

    # State

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all that was logged before is sent; returns whether it is.

        A tracker that failed is retried at once; if it fails again, its records stay in the log.

        Args:
            timeout: The longest time to wait, in seconds.
        """
        deadline = time.monotonic() + timeout
        if self._closed:
            return not any(each.waiting() for each in self._senders)
        if not self._writer.flush(deadline):
            return False
        late = [each for each in self._senders if not each.flush(deadline)]
        return not late

    def status(self) -> dict[str, TrackerStatus]:
        """Return the state of each tracker by name, and of the log as ``"jsonl"``."""
        writer = self._writer
        log = TrackerStatus(writer.written, 0, writer.lost, 0, writer.error, 0.0)
        senders = {each.tracker.name: each.status(writer.lost) for each in self._senders}
        return {"jsonl": log, **senders}

    def close(self, timeout: float = 10.0) -> None:
        """Send what can be sent, and stop; the end of the process does it too.

        What a tracker didn't accept stays in the log, for the next logger of this run, and is
        reported.

        Args:
            timeout: The longest time to wait for trackers, in seconds.
        """
        with self._closing:
            if self._closed:
                return
            self._closed, self._refusal = True, "this logger is closed"
        atexit.unregister(self.close)
        deadline = time.monotonic() + timeout
        written = self._writer.stop(deadline)
        for sender in self._senders:
            sender.stop()
        for sender in self._senders:
            if not (sender.join(deadline) and written):
                logger.warning(
                    "tracker %r has not accepted all records; %d bytes of %s remain for a logger "
                    "with path=%r and run_name=%r", sender.tracker.name, sender.waiting(),
                    self._log.path, str(self.run.folder.parent), self.run.name,
                )  # fmt: skip
        if written:
            self._log.close()
        if self._writer.lost:
            logger.error("%d records were lost", self._writer.lost)

    def _wake_senders(self) -> None:
        for sender in self._senders:
            sender.wake()

    def _note_full(self, problem: str | None) -> None:
        if self._raises and not self._closed:
            self._refusal = problem

    def _close_first(self) -> None:
        # A tracker's package may stop its work at exit: this handler must run before its handlers.
        atexit.unregister(self.close)
        atexit.register(self.close)

    def _forget(self) -> None:
        """Close the files in a forked process, which doesn't have the threads of its parent."""
        self._closed, self._closing = True, threading.Lock()
        self._refusal = (
            f"this logger belongs to process {self._process}, from which this one was forked; "
            f"create a RewardLogger here, with run_name={self.run.name!r} for the same run"
        )
        self._log.close()
        for sender in self._senders:
            sender.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TrackerError(
            "a RewardLogger can't be pickled or copied, because it has threads and open files; "
            f"create one where it is needed, with run_name={self.run.name!r} for the same run"
        )


_alive: weakref.WeakSet[RewardLogger] = weakref.WeakSet()


def _forget_all() -> None:
    for each in list(_alive):
        each._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
