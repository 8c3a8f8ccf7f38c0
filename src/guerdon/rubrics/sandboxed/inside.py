"""The sandbox's side: loading a reward, and answering calls.

The process is locked after it imports this module and before it calls `load`, so that everything
but the reward's own code is imported here.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  (like others below, used in calls alone)
import importlib.abc
import importlib.util
import io
import sys
import tokenize  # noqa: F401
import traceback  # noqa: F401
from collections.abc import Callable, Coroutine, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from guerdon._loading import load_object, module_of_text, object_in, split_spec
from guerdon.errors import GuerdonError, InvalidArgumentError, LoadError
from guerdon.rubrics.containers import gates_of
from guerdon.rubrics.functions.conversion import ConversationReplay, as_reward_function
from guerdon.rubrics.functions.function import Mode, RewardFunction, failed
from guerdon.rubrics.functions.loading import is_factory, reward_of
from guerdon.rubrics.replay import replay, replay_async
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.sandboxed.messages import (
    VERSION,
    Call,
    Description,
    RewardSpec,
    read_call,
    read_message,
    write_call,
    write_refusal,
    write_reply,
)
from guerdon.rubrics.state import classes_of
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import Message

# Runs what is async, and returns its result.
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class LoadedReward:
    """A reward that answers calls, or the reason why it could not be loaded.

    Args:
        description: The description that the host receives.
        reward: The reward; None if it could not be loaded.
        run: Runs what is async.
    """

    def __init__(
        self,
        description: Description,
        reward: Rubric | RewardFunction | None = None,
        *,
        run: Run | None = None,
    ) -> None:
        self.description = description.model_dump_json().encode()
        self._refused = description.refused
        self._reward = reward
        self._run = run

    def answer(self, job: bytes) -> bytes:
        """Answer a call.

        The output of the reward has been flushed when this returns.

        Args:
            job: The bytes of `write_call`.

        Returns:
            Bytes for `read_reply`.
        """
        if self._reward is None:
            return write_refusal(f"the function could not be loaded: {self._refused}")
        try:
            call = read_call(job)
        except InvalidArgumentError as error:
            return write_refusal(str(error))
        if isinstance(self._reward, Rubric):
            results = [_score_with_rubric(self._reward, call, self._run)]
        else:
            results = _score_with_function(self._reward, call, self._run)
        try:
            return write_reply(results)
        except BaseException as error:  # such as what a property of its own class raises
            return write_reply([EvaluateResult(error=f"{failed(error).error}")] * len(results))
        finally:
            _flush()

    def warm_up(self) -> None:
        """Read calls and write answers, so that copies share what is created then."""
        messages = [Message(role="user", content="?")] * 20
        for _ in range(20):
            read_call(write_call([messages], "42"))
            write_reply([EvaluateResult(score=1.0)])


def _score_with_function(
    function: RewardFunction, call: Call, run: Run | None
) -> list[EvaluateResult]:
    given = call.rollouts if function.mode == "batch" else call.rollouts[0]
    try:
        found = function.evaluate(given, call.ground_truth, call.others)
        if run is not None:
            found = run(found)
    except BaseException as error:  # also a cancellation, which is the function's own here
        return [failed(error) for _ in call.rollouts]
    return found if function.mode == "batch" else [found]


def _score_with_rubric(rubric: Rubric, call: Call, run: Run | None) -> EvaluateResult:
    """Replay a rubric; the error of a failure names the step and the rubric."""
    columns = call.others
    if call.ground_truth is not None:
        columns = columns | {"ground_truth": call.ground_truth}
    done = ConversationReplay()
    try:
        steps = done.read(call.rollouts[0], columns)
        if run is not None:
            run(replay_async(rubric, steps, done))
        else:
            replay(rubric, steps, done)
        return done.result()
    except BaseException as error:  # as above
        return done.failed(error)


def load(config: bytes) -> LoadedReward:
    """Load the reward of a `RewardSpec`, given as JSON.

    The description contains what the reward's code raises.
    """
    try:
        wanted = read_message(RewardSpec, config, "the specification of the reward")
        if isinstance(sys.stdout, io.TextIOWrapper):  # so that the output of a killed call is kept
            sys.stdout.reconfigure(line_buffering=True)
        reward = load_function(wanted)
        run = None
        if reward._find_traits().is_async if isinstance(reward, Rubric) else reward.is_async:
            import asyncio  # here, not in each call; most rewards need none of it

            run = asyncio.Runner().run if wanted.keep_loop else asyncio.run
        return LoadedReward(describe(reward), reward, run=run)
    except LoadError as error:
        return LoadedReward(_refusal(error))
    except BaseException as error:  # such as a KeyboardInterrupt of the file itself
        why = f"loading it raised {type(error).__name__}: {error}"
        return LoadedReward(Description(version=VERSION, refused=why))
    finally:
        _flush()


def load_function(wanted: RewardSpec) -> Rubric | RewardFunction:
    """Load a reward.

    Raises:
        LoadError: It can't be found or imported, or is not a reward.
    """
    spec = wanted.spec
    if wanted.requirements:
        from guerdon.rubrics.sandboxed.source import check_requirements

        check_requirements(wanted.requirements, spec)
    named = spec
    if wanted.module is not None:
        sys.meta_path.insert(0, _Placed(wanted))
    elif wanted.text is not None:
        file = wanted.file or "<reward>"
        module = module_of_text(wanted.text, file, spec, digest=wanted.digest)
        return _reward(object_in(module, spec), spec, wanted.mode)
    elif wanted.file is not None:
        named = f"{wanted.file}:{split_spec(spec)[1]}"
    if wanted.folder is not None and wanted.folder not in sys.path:
        sys.path.insert(0, wanted.folder)
    return _reward(load_object(named), spec, wanted.mode)


class _Placed(importlib.abc.ExecutionLoader):
    """Finds one top-level module whose folder can't be read, and so isn't on ``sys.path``.

    It also loads a module of a single file, whose text was sent.
    """

    def __init__(self, wanted: RewardSpec) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module; None for any other."""
        wanted = self._wanted
        if name != wanted.module:
            return None
        if wanted.file is None:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = list(wanted.folders)
            return spec
        return importlib.util.spec_from_file_location(
            name,
            wanted.file,
            loader=None if wanted.text is None else self,
            submodule_search_locations=list(wanted.folders) or None,
        )

    def get_filename(self, fullname: str) -> str:
        return str(self._wanted.file)

    def get_source(self, fullname: str) -> str:
        return str(self._wanted.text)


def _reward(found: Any, spec: str, mode: Mode | None) -> Rubric | RewardFunction:
    bare = callable(found) and not isinstance(found, type | Rubric | RewardFunction)
    try:
        if mode is not None and bare and not is_factory(found):
            return RewardFunction(found, mode)
        reward = reward_of(found, spec)
        function = as_reward_function(reward)  # a rubric as one is pointwise
        if mode not in (None, function.mode):
            # Raises an error that explains the mode, or takes the requested one.
            return RewardFunction(function, mode)
    except LoadError:
        raise
    except GuerdonError as error:
        raise LoadError(f"{spec}: {error}", spec=spec) from error
    return reward


def describe(reward: Rubric | RewardFunction) -> Description:
    """Return the description of a loaded reward."""
    function = as_reward_function(reward)
    return Description(
        version=VERSION,
        name=str(function.__name__)[:1000],
        is_rubric=isinstance(reward, Rubric),
        gates=tuple(gates_of(reward)) if isinstance(reward, Rubric) else (),
        rubrics=classes_of(reward) if isinstance(reward, Rubric) else {},
        parameters=function.parameters,
        fingerprint=reward.fingerprint() if isinstance(reward, Rubric) else function.fingerprint,
    )


def _refusal(error: LoadError) -> Description:
    cause = error.__cause__
    name = cause.name if isinstance(cause, ModuleNotFoundError) else None
    return Description(
        version=VERSION,
        refused=_utf8(str(error)),
        traceback=None if error.traceback is None else _utf8(error.traceback),
        missing=name if isinstance(name, str) else None,
    )


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The reward's code may have closed or replaced it.
        with contextlib.suppress(BaseException):
            stream.flush()
