"""Opening what a reward function runs in, and loading it there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from guerdon.errors import InvalidArgumentError, LoadError, SandboxError
from guerdon.rubrics.functions.function import Mode, RewardFunction, as_reward_function
from guerdon.sandbox.evaluating.calling import describe, load_function
from guerdon.sandbox.evaluating.endings import printed, say_ending
from guerdon.sandbox.evaluating.engines import Engine, InProcess, Pooled
from guerdon.sandbox.evaluating.handover import Described, Handover
from guerdon.sandbox.evaluating.pools import CallPool
from guerdon.sandbox.evaluating.requirements import check_requirements
from guerdon.sandbox.evaluating.source import TEXT_FILE, Found, RewardSource, find_source
from guerdon.sandbox.evaluating.wire import VERSION, read_wire
from guerdon.sandbox.limits import Limits

__all__ = ["open_engine"]

# Bytes that a function's side may tell of it.
MAX_DESCRIBED = 1 << 20

_LOCAL = ("auto", "strict", "process")


def open_engine(
    spec: str | RewardSource,
    mode: Mode | None,
    *,
    level: str,
    workers: int,
    limits: Limits,
    reuse: bool,
    allow_read: Sequence[str | Path],
) -> tuple[Engine, Described, RewardFunction | None]:
    """Load a reward where it is to run; see `EvalSandbox`.

    Returns:
        What runs its calls, what it is, and, in process, it itself.
    """
    if isinstance(spec, RewardSource) and (level == "none" or level in _LOCAL):
        check_requirements(spec.requirements, f"{TEXT_FILE}:{spec.name}")
    if level == "none":
        return _in_process(spec, mode)
    found = find_source(spec, mode, allow_read=allow_read, keep_loop=reuse)
    if level in _LOCAL:
        engine, told = _local(found, level=level, workers=workers, limits=limits, reuse=reuse)
    else:
        if reuse:
            raise InvalidArgumentError(
                f"reuse is for the levels {', '.join(_LOCAL)}, not for {level!r}"
            )
        if isinstance(spec, RewardSource):  # what is installed there, is known there
            asked = found.handover.model_copy(update={"requirements": spec.requirements})
            found = Found(asked, found.read, found.path, found.folder)
        engine, told = _plugged_in(
            found, level=level, workers=workers, limits=limits, allow_read=allow_read
        )
    try:
        return engine, _accepted(told, found), None
    except BaseException:
        engine.close()
        raise


def _in_process(
    spec: str | RewardSource, mode: Mode | None
) -> tuple[Engine, Described, RewardFunction]:
    if isinstance(spec, RewardSource):
        handover = Handover(
            version=VERSION, spec=f"{TEXT_FILE}:{spec.name}", text=spec.text, file=TEXT_FILE,
            mode=mode,
        )  # fmt: skip
    else:
        handover = Handover(version=VERSION, spec=spec, mode=mode)
    reward = load_function(handover)
    function = as_reward_function(reward)
    return InProcess(function), describe(reward), function


def _local(
    found: Found, *, level: str, workers: int, limits: Limits, reuse: bool
) -> tuple[Engine, bytes]:
    from guerdon.sandbox.local.functions import FunctionPool

    try:
        pool = FunctionPool(
            found.handover.model_dump_json().encode(),
            level=level,
            workers=workers,
            limits=limits,
            reuse=reuse,
            read=found.read,
            path=found.path,
        )
    except SandboxError as error:
        raise _died(error, found, limits) from error
    return _pooled(pool, found, limits, workers, pool.name, pool.promise), pool.described


def _plugged_in(
    found: Found, *, level: str, workers: int, limits: Limits, allow_read: Sequence[str | Path]
) -> tuple[Engine, bytes]:
    from guerdon.sandbox.evaluating.plugin_pool import PluginPool
    from guerdon.sandbox.opening import plug_in

    read = [str(each) for each in allow_read]
    sandbox = plug_in(level)(workers=workers, limits=limits, allow_read=read)
    try:
        pool = PluginPool(
            sandbox, found.handover.model_dump_json().encode(), limits=limits, path=found.path
        )
    except BaseException:
        sandbox.close()
        raise
    return _pooled(pool, found, limits, workers, sandbox.name, sandbox.promise), pool.described


def _pooled(
    pool: CallPool, found: Found, limits: Limits, workers: int, level: str, promise: str
) -> Engine:
    return Pooled(pool, found, limits=limits, workers=workers, level=level, promise=promise)


def _died(error: SandboxError, found: Found, limits: Limits) -> Exception:
    """The error of a function that ended its process while it was loaded."""
    ended = error.execution
    if ended is None or ended.ending == "sandbox_error":
        return error
    spec = found.handover.spec
    said = say_ending(ended, limits)
    return LoadError(f"{spec}: importing it: {said}", spec=spec, traceback=printed(ended))


def _accepted(told: bytes, found: Found) -> Described:
    """What a function's side tells of it, which may be anything.

    Raises:
        LoadError: It could not be loaded.
    """
    spec = found.handover.spec
    if len(told) > MAX_DESCRIBED:
        raise LoadError(f"{spec}: its description has {len(told):,} bytes", spec=spec)
    try:
        described = read_wire(Described, told, "its description")
    except InvalidArgumentError as error:
        raise LoadError(f"{spec}: {error}", spec=spec) from None
    if described.refused is None:
        return described
    said = described.refused
    hint = None
    if described.missing is not None or "attempted relative import" in said:
        hint = found.hint(described.missing)
    raise LoadError(f"{said}; {hint}" if hint else said, spec=spec, traceback=described.traceback)
