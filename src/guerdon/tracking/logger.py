"""`RewardLogger`: rewards, their parts and what changed, to experiment trackers."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Self, overload

from guerdon.errors import InvalidArgumentError, TrackerError
from guerdon.tracking.checking import (
    IDS,
    LAST_STEP,
    checked_amount,
    checked_id,
    checked_scores,
    checked_step,
    checked_weights,
)
from guerdon.tracking.config_changes import NOT_TOLD, changes_of
from guerdon.tracking.finding import Backend, trackers_of
from guerdon.tracking.runs import open_run
from guerdon.tracking.sending import Sender, TrackerStatus
from guerdon.tracking.spool import new_spool, runs_that_wait
from guerdon.tracking.writing import Writer

__all__ = ["RewardLogger"]

logger = logging.getLogger(__name__)


class RewardLogger:
    """Logs rewards to one or several experiment trackers, and never waits for them.

    `log_step` puts a record in a queue. A thread writes the queue to disk every tenth of a second,
    and a thread for each tracker sends what is on disk; what a tracker has taken is removed. So a
    tracker that is down or hangs stops neither training nor the other trackers, and its records
    are sent when it works again: by this process, or by the next that opens the same `path` and
    `run_name`. A process that is killed loses what it logged within the last second at most; a
    machine that stops, what its disk was not yet told to keep, about a second too.

    The metrics are ``reward/total``, ``reward/{name}``, ``reward/weights/{name}``,
    ``reward/invalid/{name}`` and ``config/updates``. Where `env_id` is given, records of several
    environments never overwrite each other; each tracker's class says how it shows them.

    `close` (or ``with``) waits for the trackers; a process that ends without it does so, too, but
    in Python 3.12 wandb can't be opened any more while it ends, and what was logged in its very
    first second then waits on disk.

    Where there is no room: `queue_size` records in memory make the caller wait until the disk has
    taken some, which lasts as long as a write to disk. Beyond `max_spool_bytes` that wait for one
    tracker, or with a disk that can't be written and a full queue, new records are lost to it:
    they are counted in `status`, logged as an error, and `close` says so. With ``on_full="raise"``
    `log_step` raises then instead.

    A logger belongs to the process that made it: in a forked one `log_step` raises, and it can't be
    pickled; make one there, with the same `path` and `run_name` for the same run. Several processes
    may have one run open. Runs in `path` with records that were left are told when it is made.

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
        backend: ``"wandb"``, ``"tensorboard"``, ``"mlflow"``, ``"jsonl"``, ``"console"``, a name
            that a package offers under the entry points ``guerdon.trackers``, a `TrackerBackend`,
            or several of these.
        path: The folder of the runs, each of which has its own.
        run_name: The run; by default a new one, called after the time.
        project: The project, or in MLflow the experiment, that the run belongs to.
        queue_size: How many records may wait in memory, at least 1; the default is what is written
            well within a second.
        max_spool_bytes: How many bytes may wait on disk for each tracker.
        on_full: ``"drop"`` or ``"raise"``.
        retry_s: Seconds before a failed tracker is tried again; then twice as long, up to 30.
        **options: Arguments of the named backend, such as ``mode="offline"``, where it is one.

    Raises:
        InvalidArgumentError: An argument can't be meant.
        TrackerError: The run's folder can't be used.
        MissingExtraError: A tracker's own package isn't there; it names the extra.
    """

    def __init__(
        self,
        backend: Backend = "wandb",
        *,
        path: str | os.PathLike[str] = "reward-logs",
        run_name: str | None = None,
        project: str = "guerdon",
        queue_size: int = 10_000,
        max_spool_bytes: int = 1 << 30,
        on_full: str = "drop",
        retry_s: float = 0.5,
        **options: Any,
    ) -> None:
        checked_amount("queue_size", queue_size, kind=int)
        checked_amount("max_spool_bytes", max_spool_bytes, kind=int)
        checked_amount("retry_s", retry_s, kind=float)
        if on_full not in ("drop", "raise"):
            raise InvalidArgumentError(f'on_full is {on_full!r}; it takes "drop" or "raise"')
        trackers = trackers_of(backend, options)
        self.run = open_run(path, name=run_name, project=project)
        self._refusal: str | None = None
        self._raises = on_full == "raise"
        self._step = self._updates = 0
        self._closing, self._counting = threading.Lock(), threading.Lock()
        self._closed, self._process = False, os.getpid()
        folders = [self.run.folder / "spool" / tracker.name for tracker in trackers]
        spools = [new_spool(folder, max_bytes=max_spool_bytes) for folder in folders]
        self._senders = [
            Sender(tracker, self.run, spool, retry_s=retry_s, opened=self._close_first)
            for tracker, spool in zip(trackers, spools, strict=True)
        ]
        self._writer = Writer(self._senders, size=queue_size, full=self._note_full)
        _alive.add(self)
        others = [name for name in runs_that_wait(self.run.folder.parent) if name != self.run.name]
        if others:
            logger.warning(
                "in %s the runs %s have records that were never sent; a logger with such a "
                "run_name sends them", self.run.folder.parent, others,
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
        invalid: Mapping[str, str] | None = None,
        reward_error: str | None = None,
    ) -> None:
        """Log the reward of one step.

        What failed is told and never becomes a number: a reward of None as
        ``reward/invalid/total``, a component of None as ``reward/invalid/{name}``. NaN and infinity
        are no rewards either, and are told in the same way. `reward_fields` has reward,
        components, invalid and reward_error of an observation.

        Args:
            step: The training or environment step, at least 0.
            episode: The episode.
            reward: The total; None where it is invalid.
            components: The parts by name, as far as there are any; None where one failed.
            env_id: The environment.
            invalid: Why parts failed, by name; they need not be among `components`.
            reward_error: Why there is no total.

        Raises:
            InvalidArgumentError: Something is of a wrong type; nothing is logged.
            TrackerError: The logger is closed, or belongs to another process, or there is no room
                and ``on_full="raise"``.
        """
        is_step = type(step) is int and 0 <= step <= LAST_STEP
        is_reward = type(reward) is float and reward - reward == 0
        failed = invalid is not None or reward_error is not None
        if is_step and is_reward and type(components) is dict and not failed:
            # What is as it mostly is passes here; infinity less itself is NaN, too.
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
        self._put(
            checked_step(step),
            kind="step",
            episode=checked_id("episode", episode),
            env_id=checked_id("env_id", env_id),
            **checked_scores(reward, components, invalid, reward_error),
        )

    def log_weights(
        self, step: int, weights: Mapping[str, float], *, env_id: int | str | None = None
    ) -> None:
        """Log the weights that are in force, as a schedule moves them.

        Args:
            step: The training or environment step, at least 0.
            weights: The weights by name.
            env_id: The environment.

        Raises:
            InvalidArgumentError: A weight is no finite number, or something is of a wrong type.
            TrackerError: As for `log_step`.
        """
        self._put(
            checked_step(step),
            kind="weights",
            env_id=checked_id("env_id", env_id),
            weights=checked_weights(weights),
        )

    @overload
    def log_config_update(
        self,
        what: Mapping[str, Any] | None,
        *,
        fingerprint: str | None = None,
        step: int | None = None,
    ) -> None: ...
    @overload
    def log_config_update(
        self,
        what: str,
        *,
        before: object,
        after: object,
        who: str | None = None,
        when: float | str | None = None,
        fingerprint: str | None = None,
        step: int | None = None,
    ) -> None: ...
    def log_config_update(
        self,
        what: str | Mapping[str, Any] | None,
        *,
        before: object = NOT_TOLD,
        after: object = NOT_TOLD,
        who: str | None = None,
        when: float | str | None = None,
        fingerprint: str | None = None,
        step: int | None = None,
    ) -> None:
        """Log a change of the configuration, as the audit log tells it.

        It counts once in ``config/updates``, however many things it changed, each of which is a
        record. A weight (`what` is ``"{name}.weight"``, also with more in front) is also
        ``reward/weights/{name}``.

        Example:
            >>> from guerdon import RewardLogger, RubricComposer
            >>> from guerdon.config import LiveReward
            >>> live = LiveReward(RubricComposer({"brief": lambda a, o: 1 / len(a)}, {"brief": 1}))
            >>> with RewardLogger("jsonl", path="logs") as logger:
            ...     answer = live.update({"weights": {"brief": 0.5}}, by="ann")
            ...     logger.log_config_update(answer["change"], step=7)

        Args:
            what: What `LiveReward.update`, or ``update_config`` of an environment or a client,
                gives under ``"change"``, or an entry of the audit log; None, where nothing was
                different, logs nothing. Or a text, such as ``"style.weight"``; then `before` and
                `after` are needed.
            before: What it was; JSON, or told in words.
            after: What it is.
            who: Who changed it.
            when: When, as seconds since 1970 or as a text; by default now.
            fingerprint: That of the configuration after it.
            step: The step from which it holds; by default the last that was logged.

        Raises:
            InvalidArgumentError: Something is of a wrong type; nothing is logged.
            TrackerError: As for `log_step`.
        """
        told = {"before": before, "after": after, "who": who, "when": when}
        changes = changes_of(what, told, fingerprint=fingerprint)
        step = self._step if step is None else checked_step(step)
        with self._counting:
            number = self._updates + 1
            for change, weights in changes:
                self._put(step, kind="config", change={**change, "number": number}, weights=weights)
                self._updates = number

    def _put(self, step: int, **row: Any) -> None:
        if self._refusal is not None:
            raise TrackerError(self._refusal)
        self._step = step
        if not self._writer.put({"time": time.time(), "step": step, **row}) and self._raises:
            raise TrackerError(f"the record of step {step} is lost: the disk can't be written")

    # How it is doing, and its end

    def flush(self, timeout: float = 30.0) -> bool:
        """Have the trackers take all that was logged before; whether they did in time.

        A tracker that failed is tried again at once, and isn't waited for if it fails again. What
        it doesn't take stays on disk.

        Args:
            timeout: Seconds to wait at most.
        """
        deadline = time.monotonic() + timeout
        if self._closed:
            return all(each.waiting() == 0 for each in self._senders)
        counts = self._writer.mark(deadline)
        if counts is None:
            return False
        waits = zip(self._senders, counts, strict=True)
        late = [sender for sender, count in waits if not sender.wait_until(count, deadline)]
        return not late

    def status(self) -> dict[str, TrackerStatus]:
        """How each tracker is doing, by name."""
        lost = self._writer.lost
        return {each.tracker.name: each.status(lost) for each in self._senders}

    def close(self, timeout: float = 10.0) -> None:
        """Send what can be sent, and end; once is enough, and the process' end does it too.

        What a tracker didn't take stays on disk, for the next logger of this run, and is told.

        Args:
            timeout: Seconds to wait for trackers at most.
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
                    "tracker %r didn't take all; %d bytes wait in %s for a logger with path=%r and "
                    "run_name=%r", sender.tracker.name, sender.waiting(),
                    sender.spool.folder.parent, str(self.run.folder.parent), self.run.name,
                )  # fmt: skip
        if written:
            self._writer.count_late()
        for name, status in self.status().items():
            if status.lost:
                logger.error("tracker %r: %d records were lost", name, status.lost)

    def _note_full(self, what: str | None) -> None:
        if self._raises and not self._closed:
            self._refusal = what

    def _close_first(self) -> None:
        # A tracker's package may end its work at exit, too: this comes before what it registered.
        atexit.unregister(self.close)
        atexit.register(self.close)

    def _forget(self) -> None:
        """In a forked process: the threads aren't here, and the files are the parent's."""
        self._closed, self._closing = True, threading.Lock()
        self._refusal = (
            f"this logger belongs to process {self._process}, and this one was forked from it; "
            f"make a RewardLogger here, with run_name={self.run.name!r} for the same run"
        )
        for sender in self._senders:
            sender.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TrackerError(
            "a RewardLogger can't be pickled or copied: it holds threads and files; make one where "
            f"it is needed, with run_name={self.run.name!r} for the same run"
        )


_alive: weakref.WeakSet[RewardLogger] = weakref.WeakSet()


def _forget_all() -> None:
    for each in list(_alive):
        each._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
