"""`EvalSandbox`: a reward function in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Self

import anyio

from guerdon._validation import check_choice, check_integer, check_list, shown
from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.rubrics.functions.function import Mode, Parameters, RewardFunction, failed, one_each
from guerdon.rubrics.sandboxed.engines import Arguments, Results, open_engine
from guerdon.rubrics.sandboxed.messages import Description, check_json, check_messages
from guerdon.rubrics.sandboxed.source import RewardSource
from guerdon.sandbox.protocol import Limits
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import read_messages

__all__ = ["BatchInterrupted", "EvalSandbox"]


class BatchInterrupted(KeyboardInterrupt):
    """Ctrl-C while a batch was scored; the sandbox is closed.

    Example:
        >>> from guerdon import EvaluateResult
        >>> interrupted = BatchInterrupted([EvaluateResult(score=1), None])
        >>> [result.score for result in interrupted.results if result is not None]
        [1.0]

    Attributes:
        results: One for each rollout; None for those that were not scored yet.
    """

    def __init__(self, results: Sequence[EvaluateResult | None]) -> None:
        super().__init__()
        self.results = list(results)


class SandboxedFunction(RewardFunction):
    """A reward function whose calls run in a sandbox; `EvalSandbox.function` is one.

    `FunctionScorer`, `score_rollouts` and `as_rubric` take it like any other `RewardFunction`.

    Args:
        description: The description of the function.
        evaluate: Calls it with messages, ground truth and its other arguments.

    Attributes:
        is_rubric: Whether it wraps a rubric.
    """

    def __init__(self, description: Description, evaluate: Callable[..., Any]) -> None:
        self.function = evaluate
        self.mode = description.parameters.mode
        self.is_async = False
        self.is_rubric = description.is_rubric
        self.parameters = description.parameters
        self.__name__ = self.__qualname__ = description.name
        self._fingerprint = description.fingerprint
        self._file = None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the function or the rubric, as the sandbox reported it."""
        return self._fingerprint

    def evaluate_or_raise(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """Score in the sandbox; the result contains what the function raises.

        Raises:
            InvalidArgumentError: The messages are invalid, or JSON can't represent an argument.
        """
        return self.function(messages, ground_truth, others or {})

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise InvalidArgumentError(
            f"{self.__name__} runs in a sandbox of this process and can't be pickled; open an "
            "EvalSandbox where it is needed"
        )


class EvalSandbox:
    """A reward function on messages, loaded in a sandbox and called there.

    This process never runs its code. Each call runs in a copy of a process that has imported the
    function once, so that calls don't share state. Any number of threads and tasks may call it; as
    many calls as there are workers run at a time, and the others wait.

    Example:
        >>> from guerdon import EvalSandbox
        >>> from guerdon.rubrics import RewardSource
        >>> source = RewardSource('''
        ... def answered(messages, ground_truth):
        ...     print("looking for", ground_truth, end="")
        ...     return float(ground_truth in messages[-1].text)
        ... ''', "answered")
        >>> chat = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
        >>> with EvalSandbox(source, level="process") as sandbox:
        ...     result = sandbox.evaluate(chat, "42")
        ...     broken = sandbox.evaluate(chat, 42)
        >>> result.score, result.log
        (1.0, 'looking for 42')
        >>> broken.score, broken.error.partition(" requires")[0], broken.error[-20:]
        (None, "TypeError: 'in <string>'", '(line 4 of <reward>)')

    Args:
        spec: ``file.py:name``, ``module:name``, or a text. The name is that of a reward function
            or of a rubric, as in `load_reward`. A file or module is found, and its text is read,
            without running it.
        mode: ``pointwise`` or ``batch``; None infers it, as `reward_function` does.
        level: ``strict``; ``auto``, which is ``strict`` or an error; ``process``, which stops
            accidents but no malice; a plug-in's name; or ``none``, which is this process, for code
            that you wrote.
        workers: How many calls run at the same time.
        limits: What each call may use.
        reuse: Whether a copy is kept for further calls: faster, but each call sees the state that
            earlier ones left, and `Limits.cpu_seconds` isn't applied.
        allow_read: Files and folders that the function may read, in addition to Python, installed
            packages, and its own file or package. If the folder of its file is among them, it may
            import the modules in that folder.

    Attributes:
        level: The level in force, never ``auto``.
        promise: What it isolates, in a line.
        mode: The function's mode.
        name: The function's name.
        parameters: Its parameters.
        is_rubric: Whether it wraps a rubric.
        gates: The paths of its gates, if it wraps a rubric.
        rubrics: The names of the classes of its rubrics, by path.
        fingerprint: Of the function or the rubric; the same at every level.
        function: A reward function whose calls run here, for `FunctionScorer`, `score_rollouts`,
            `as_rubric` and the like.

    Raises:
        LoadError: It can't be loaded, or a requirement isn't installed.
        SandboxUnavailableError: The level doesn't work on this machine; it lists what is missing.
        SandboxError: A worker can't be started.
        InvalidArgumentError: Another argument is invalid.
    """

    def __init__(
        self,
        spec: str | RewardSource,
        mode: Mode | None = None,
        *,
        level: str = "auto",
        workers: int = 1,
        limits: Limits | None = None,
        reuse: bool = False,
        allow_read: Sequence[str | Path] = (),
    ) -> None:
        if not isinstance(spec, (str, RewardSource)):
            raise InvalidArgumentError(
                f"`spec` must be file.py:name, module:name or a RewardSource, got {shown(spec)}"
            )
        if mode is not None:
            check_choice("mode", mode, ("pointwise", "batch"))
        check_list("allow_read", allow_read)
        self._closed = False
        self._engine, description, own = open_engine(
            spec,
            mode,
            level=level,
            workers=check_integer("workers", workers, low=1),
            limits=limits or Limits(),
            reuse=reuse,
            allow_read=allow_read,
        )
        self.level = self._engine.level
        self.promise = self._engine.promise
        self.name = description.name
        self.mode = description.parameters.mode
        self.is_rubric = description.is_rubric
        self.gates, self.rubrics = description.gates, description.rubrics
        self.fingerprint = description.fingerprint
        self.parameters: Parameters = description.parameters
        self.function = own or SandboxedFunction(description, self._evaluate)

    def evaluate(self, messages: Any, ground_truth: Any = None, **kwargs: Any) -> EvaluateResult:
        """Score one conversation; a function of batches scores it as a batch of one.

        Failures of the function are part of the result.

        Args:
            messages: The conversation: `Message` or dicts.
            ground_truth: What the answer should be.
            **kwargs: The function's other arguments, by name; those it doesn't take are left out.

        Raises:
            InvalidArgumentError: The messages are invalid, or JSON can't represent an argument.
            SandboxError: It is closed.
        """
        return self._engine.run(self._one(messages, ground_truth, kwargs))[0]

    async def evaluate_async(
        self, messages: Any, ground_truth: Any = None, **kwargs: Any
    ) -> EvaluateResult:
        """Like `evaluate`. If it is cancelled, the call is ended."""
        call = self._one(messages, ground_truth, kwargs)
        return (await self._engine.run_async(call))[0]

    def evaluate_batch(
        self, rollouts_messages: Any, ground_truths: Any = None, **kwargs: Any
    ) -> list[EvaluateResult]:
        """Score several conversations; a pointwise function scores each, on all workers.

        Example:
            >>> from guerdon import EvalSandbox
            >>> from guerdon.rubrics import RewardSource
            >>> source = RewardSource('''
            ... def shortest(rollouts_messages):
            ...     lengths = [len(messages) for messages in rollouts_messages]
            ...     return [float(length == min(lengths)) for length in lengths]
            ... ''', "shortest")
            >>> chats = [[{"role": "user", "content": "Hi"}], []]
            >>> with EvalSandbox(source, level="process") as sandbox:
            ...     [result.score for result in sandbox.evaluate_batch(chats)]
            [0.0, 1.0]

        Args:
            rollouts_messages: The conversations.
            ground_truths: What each answer should be, one for each; None is None for all.
            **kwargs: The function's other arguments, by name, the same in every call.

        Raises:
            InvalidArgumentError: As in `evaluate`; no call was made.
            BatchInterrupted: Ctrl-C was pressed. It has the results so far; all calls are ended.
            SandboxError: It is closed.
        """
        return self._run_each(self._several(rollouts_messages, ground_truths, kwargs))

    async def evaluate_batch_async(
        self, rollouts_messages: Any, ground_truths: Any = None, **kwargs: Any
    ) -> list[EvaluateResult]:
        """Like `evaluate_batch`. If it is cancelled, all calls are ended."""
        calls = self._several(rollouts_messages, ground_truths, kwargs)
        found: list[list[EvaluateResult]] = [[]] * len(calls)
        room = anyio.Semaphore(self._engine.parallel)

        async def run(place: int, call: Arguments) -> None:
            async with room:
                found[place] = await self._engine.run_async(call)

        async with anyio.create_task_group() as group:
            for place, call in enumerate(calls):
                group.start_soon(run, place, call)
        return [result for results in found for result in results]

    def evaluate_together(self, calls: Sequence[tuple[Any, Any, dict[str, Any]]]) -> Results:
        """Score several conversations of a pointwise function, one after the other in one copy.

        That saves a fork for each. Each call sees the state that those before it left, and has the
        limits to itself, except for `Limits.cpu_seconds`: each may use the sum of all. One that
        ends the copy, or reaches a limit, is repeated in a fresh copy, and so fails alone.

        Example:
            >>> from guerdon import EvalSandbox
            >>> from guerdon.rubrics import RewardSource
            >>> source = RewardSource("def equal(messages, ground_truth, wanted): "
            ...                       "return float(ground_truth == wanted)", "equal")
            >>> with EvalSandbox(source, level="process") as sandbox:
            ...     results = sandbox.evaluate_together([([], 1, {"wanted": 1}), ([], 1, {})])
            >>> results[0].score, results[1].error.partition(":")[0]
            (1.0, 'TypeError')

        Args:
            calls: The messages, the ground truth and the other arguments of each call.

        Returns:
            A result for each; it is invalid if its arguments are.

        Raises:
            SandboxError: The sandbox is closed.
        """
        results: list[EvaluateResult | None] = []
        valid: list[Arguments] = []
        for call in calls:
            try:
                valid.append(self._one(*call))
                results.append(None)
            except InvalidArgumentError as error:
                results.append(failed(error))
        found = (each[0] for each in self._engine.run_each(valid))
        return [next(found) if result is None else result for result in results]

    def close(self) -> None:
        """End all calls and workers; it can't be used again."""
        self._closed = True
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<EvalSandbox {self.level}: {self.mode} {self.name}>"

    def _evaluate(self, messages: Any, ground_truth: Any, others: dict[str, Any]) -> Any:
        """Evaluate with the signature of a `RewardFunction`."""
        if self.mode == "batch":
            return self._run_each(self._several(messages, ground_truth, others))
        return self._engine.run(self._one(messages, ground_truth, others))[0]

    def _run_each(self, calls: list[Arguments]) -> list[EvaluateResult]:
        found: list[list[EvaluateResult] | None] = [None] * len(calls)
        try:
            if self._engine.parallel == 1 or len(calls) < 2:
                for place, call in enumerate(calls):
                    found[place] = self._engine.run(call)
            else:
                self._spread(calls, found)
        except KeyboardInterrupt:
            self.close()
            results = [None if each is None else each[0] for each in found]
            if self.mode == "batch":  # one call for all, which hasn't ended
                results = [None] * len(calls[0].rollouts)
            raise BatchInterrupted(results) from None
        return [result for results in found for result in results or ()]

    def _spread(self, calls: list[Arguments], found: list[list[EvaluateResult] | None]) -> None:
        """Run calls on all workers."""
        with ThreadPoolExecutor(min(self._engine.parallel, len(calls))) as executor:
            places: dict[Future[list[EvaluateResult]], int] = {
                executor.submit(self._engine.run, call): place for place, call in enumerate(calls)
            }
            try:
                for future in as_completed(places):
                    found[places[future]] = future.result()
            except BaseException:
                for future, place in places.items():
                    if not future.cancel() and future.done() and future.exception() is None:
                        found[place] = future.result()
                self.close()  # or the executor would wait for what runs
                raise

    def _one(self, messages: Any, ground_truth: Any, others: dict[str, Any]) -> Arguments:
        given, truths = {"messages": messages}, {"ground_truth": ground_truth}
        return self._calls(given, truths, others)[0]

    def _several(self, rollouts: Any, truths: Any, others: dict[str, Any]) -> list[Arguments]:
        check_list("rollouts_messages", rollouts)
        truths = one_each(truths, len(rollouts), error=InvalidArgumentError)
        return self._calls(
            {f"rollouts_messages[{place}]": each for place, each in enumerate(rollouts)},
            {f"ground_truths[{place}]": each for place, each in enumerate(truths)},
            others,
        )

    def _calls(
        self, conversations: dict[str, Any], truths: dict[str, Any], others: dict[str, Any]
    ) -> list[Arguments]:
        """Return the calls for arguments, which are given by their names in errors."""
        if self._closed:
            raise SandboxError(f"the sandbox of {self.name} is closed")
        if self.parameters.ground_truth is None:  # the function doesn't take it
            truths = dict.fromkeys(truths)
        given = {where: read_messages(each, where) for where, each in conversations.items()}
        taken = {name: value for name, value in others.items() if self.parameters.takes(name)}
        if self._engine.sends:
            for where, messages in given.items():
                check_messages(messages, where)
            for where, value in (*truths.items(), *taken.items()):
                check_json(value, where)
        if self.mode == "batch":
            return [Arguments(list(given.values()), list(truths.values()), taken)]
        pairs = zip(given.values(), truths.values(), strict=True)
        return [Arguments([messages], truth, taken) for messages, truth in pairs]
