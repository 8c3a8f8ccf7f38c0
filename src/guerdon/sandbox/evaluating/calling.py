"""The side of the sandbox: it loads a reward, and answers calls. Nothing of the host is here.

The process that imports this module is locked before `load` runs, so that all it needs is
imported here, and the person's code alone comes later.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  (and what follows: what is first needed in a call)
import importlib.abc
import importlib.util
import io
import sys
import tokenize  # noqa: F401
import traceback  # noqa: F401
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from guerdon._loading import (
    DIGEST,
    load_object,
    module_of_text,
    object_in,
    split_spec,
)
from guerdon.errors import GuerdonError, InvalidArgumentError, LoadError
from guerdon.rubrics.functions.function import Mode, RewardFunction, as_reward_function, failed
from guerdon.rubrics.functions.loading import (
    is_factory,
    reward_of,
)
from guerdon.rubrics.rubric import Rubric
from guerdon.sandbox.evaluating.handover import Described, Handover, Place
from guerdon.sandbox.evaluating.running import FunctionRunner, Loop, RubricRunner, Runner
from guerdon.sandbox.evaluating.wire import (
    VERSION,
    read_call,
    read_wire,
    write_call,
    write_refusal,
    write_reply,
)
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import Message

__all__ = ["Callee", "describe", "load", "load_function"]


class Callee:
    """A loaded reward, which answers calls; or one that could not be loaded.

    Args:
        described: What is told of it.
        runner: What scores with it; None where it could not be loaded.
        loop: The runner's; it is closed with the callee.
    """

    def __init__(
        self, described: Described, runner: Runner | None = None, *, loop: Loop | None = None
    ) -> None:
        self._loop = loop
        self.described = described.model_dump_json().encode()
        self._refused = described.refused
        self._runner = runner

    def answer(self, job: bytes) -> bytes:
        """Answer a call.

        What the function printed has left the buffers of Python when this returns.

        Args:
            job: What `write_call` gave.

        Returns:
            What `read_reply` reads.
        """
        if self._runner is None:
            return write_refusal(f"the function could not be loaded: {self._refused}")
        try:
            call = read_call(job)
        except InvalidArgumentError as error:
            return write_refusal(str(error))
        if self._runner.mode == "pointwise" and len(call.rollouts) != 1:
            return write_refusal(f"the function takes one rollout, not {len(call.rollouts)}")
        results = self._runner.run(call.rollouts, call.ground_truth, call.others)
        try:
            return write_reply(results)
        except BaseException as error:  # such as what a property of its own class raises
            return write_reply([EvaluateResult(error=f"{failed(error).error}")] * len(results))
        finally:
            _flush()

    def warm_up(self) -> None:
        """Read calls and write answers, so that copies find what is made on the way."""
        messages = [Message(role="user", content="?")] * 20
        for _ in range(20):
            read_call(write_call([messages], "42"))
            write_reply([EvaluateResult(score=1.0)])

    def close(self) -> None:
        """Close the event loop that it has kept; a process that ends need not."""
        if self._loop is not None:
            self._loop.close()


def load(config: bytes) -> Callee:
    """Load the reward of a `Handover`, given as JSON.

    Nothing that the person's code does is raised here; it is told in what is described.
    """
    try:
        handover = read_wire(Handover, config, "what the sandbox was handed")
        if isinstance(sys.stdout, io.TextIOWrapper):  # what a killed call printed is told, too
            sys.stdout.reconfigure(line_buffering=True)
        reward = load_function(handover)
        loop = Loop(handover.keep_loop)
        if _is_async(reward):
            import asyncio  # noqa: F401  (once, not in each call; most rewards need none of it)
        kind = RubricRunner if isinstance(reward, Rubric) else FunctionRunner
        return Callee(describe(reward), kind(reward, loop), loop=loop)  # type: ignore[arg-type]
    except LoadError as error:
        return Callee(_refusal(error))
    except BaseException as error:  # such as a KeyboardInterrupt that a file raises
        said = f"loading it raised {type(error).__name__}: {error}"
        return Callee(Described(version=VERSION, refused=said))
    finally:
        _flush()


def _is_async(reward: Rubric | RewardFunction) -> bool:
    return reward._look().is_async if isinstance(reward, Rubric) else reward.is_async


def load_function(handover: Handover) -> Rubric | RewardFunction:
    """Load the reward of a handover.

    Raises:
        LoadError: It can't be found or imported, or is none.
    """
    spec = handover.spec
    if handover.requirements:
        from guerdon.sandbox.evaluating.requirements import check_requirements

        check_requirements(handover.requirements, spec)
    if handover.text is not None:
        file = handover.file or "<reward>"
        module = module_of_text(handover.text, file, spec, digest=handover.digest)
        return _reward(object_in(module, spec), handover)
    if handover.place is not None:
        sys.meta_path.insert(0, _Placed(handover.place))
    if handover.folder is not None and handover.folder not in sys.path:
        sys.path.insert(0, handover.folder)
    named = spec if handover.file is None else f"{handover.file}:{split_spec(spec)[1]}"
    return _reward(load_object(named), handover)


class _Placed:
    """Finds one top-level module whose folder can't be listed, so that ``sys.path`` is no help."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None of every other."""
        place = self._place
        if name != place.name:
            return None
        if place.file is None:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = list(place.folders)
            return spec
        return importlib.util.spec_from_file_location(
            name,
            place.file,
            loader=None if place.text is None else _TextLoader(place),
            submodule_search_locations=list(place.folders) or None,
        )


class _TextLoader(importlib.abc.ExecutionLoader):
    """Loads a single file whose text was handed over."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def get_filename(self, fullname: str) -> str:
        return str(self._place.file)

    def get_source(self, fullname: str) -> str:
        return str(self._place.text)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, DIGEST, self._place.digest)
        super().exec_module(module)


def _reward(found: Any, handover: Handover) -> Rubric | RewardFunction:
    spec, mode = handover.spec, handover.mode
    bare = callable(found) and not isinstance(found, type | Rubric | RewardFunction)
    try:
        if mode is not None and bare and not is_factory(found):
            return RewardFunction(found, mode)
        reward = reward_of(found, spec)
        if mode is not None and _mode(reward) != mode:
            # Which says what the matter is, or takes the one that was said.
            return RewardFunction(as_reward_function(reward), mode)
    except LoadError:
        raise
    except GuerdonError as error:
        raise LoadError(f"{spec}: {error}", spec=spec) from error
    return reward


def _mode(reward: Rubric | RewardFunction) -> Mode:
    return "pointwise" if isinstance(reward, Rubric) else reward.mode


def describe(reward: Rubric | RewardFunction) -> Described:
    """What is told of a reward that has been loaded."""
    function = as_reward_function(reward)
    takes = function.parameters
    is_rubric = isinstance(reward, Rubric)
    return Described(
        version=VERSION,
        name=str(function.__name__)[:1000],
        mode=function.mode,
        is_rubric=is_rubric,
        messages=takes.messages,
        ground_truth=takes.ground_truth,
        named=sorted(takes.named),
        takes_all=takes.takes_all,
        fingerprint=reward.fingerprint() if isinstance(reward, Rubric) else function.fingerprint,
    )


def _refusal(error: LoadError) -> Described:
    cause = error.__cause__
    name = cause.name if isinstance(cause, ModuleNotFoundError) else None
    missing = name if isinstance(name, str) else None
    return Described(
        version=VERSION,
        refused=_text(str(error)),
        traceback=None if error.traceback is None else _text(error.traceback),
        missing=missing,
    )


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The person's code may have closed or replaced it; then there is nothing to flush.
        with contextlib.suppress(BaseException):
            stream.flush()
