"""Guarded: timeout, retries, error policy."""

import contextlib
import logging
import threading

import anyio
import pytest

from guerdon.errors import GuardTimeoutError, InvalidArgumentError
from guerdon.rubrics import Gate, Guarded, Rubric, Sequential, WeightedSum


class Ranged(Rubric):
    """Fails the first few times."""

    score_range = (-1.0, 1.0)

    def __init__(self, failures=10**9, value=0.5):
        super().__init__()
        self.calls = 0
        self.failures = failures
        self.value = value

    def forward(self, action, observation):
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError(f"down, call {self.calls}")
        return self.value


class AsyncRanged(Ranged):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return super().forward(action, observation)


@pytest.fixture
def stuck():
    """A rubric that waits until the test is over."""
    released = threading.Event()

    class Stuck(Rubric):
        score_range = (-1.0, 1.0)
        calls = 0

        def forward(self, action, observation):
            self.calls += 1
            released.wait(20)
            return 1.0

    yield Stuck()
    released.set()


class StuckAsync(Rubric):
    score_range = (-1.0, 1.0)

    async def forward(self, action, observation):
        await anyio.sleep_forever()


async def outcome(rubric, how):
    """What a rubric gives, called, or evaluated."""
    if how == "evaluate":
        return await rubric.evaluate(None, None)
    result = rubric(None, None)
    return await result if hasattr(result, "__await__") else result


both = pytest.mark.parametrize("how", ["call", "evaluate"])
kinds = pytest.mark.parametrize("kind", [Ranged, AsyncRanged])


# Without trouble


@pytest.mark.anyio
@both
@kinds
@pytest.mark.parametrize("timeout", [None, 5])
async def test_guarded_returns_the_score(kind, how, timeout):
    child = kind(failures=0)
    rubric = Guarded(child, timeout=timeout, retries=2)
    assert await outcome(rubric, how) == 0.5
    assert child.calls == 1
    assert child.last_score == rubric.last_score == 0.5


def test_guarded_with_timeout_keeps_components_and_reasons():
    class Explains(Rubric):
        def forward(self, action, observation):
            self.explain("because")
            return 0.5

    score = Sequential(Guarded(Sequential(Explains(), Gate(Explains())), timeout=5)).score(
        None, None
    )
    assert score.components() == {
        "rubric_0": 0.0,
        "rubric_0.rubric": 0.0,
        "rubric_0.rubric.rubric_0": 0.5,
        "rubric_0.rubric.rubric_1": 0.0,
        "rubric_0.rubric.rubric_1.rubric": 0.5,
    }
    assert score["rubric_0.rubric.rubric_0"].reason == "because"
    assert Guarded(Explains(), timeout=5).score(None, None)["rubric"].reason == "because"


# Errors


@pytest.mark.anyio
@both
@kinds
async def test_guarded_raises_a_failure_by_default(kind, how):
    with pytest.raises(ConnectionError, match="down, call 1"):
        await outcome(Guarded(kind()), how)


@pytest.mark.anyio
@both
@kinds
@pytest.mark.parametrize("timeout", [None, 5])
async def test_guarded_retries_until_an_attempt_succeeds(kind, how, timeout):
    child = kind(failures=2)
    assert await outcome(Guarded(child, retries=2, timeout=timeout), how) == 0.5
    assert child.calls == 3


@pytest.mark.anyio
@both
@kinds
async def test_guarded_raises_the_last_failure_after_all_retries(kind, how):
    child = kind()
    with pytest.raises(ConnectionError, match="down, call 3"):
        await outcome(Guarded(child, retries=2), how)
    assert child.calls == 3


@pytest.mark.anyio
@both
@kinds
@pytest.mark.parametrize(("policy", "expected"), [("zero", 0.0), ("minimum", -1.0)])
async def test_guarded_policies_substitute_a_score_and_report_it(
    kind, how, policy, expected, caplog
):
    rubric = Guarded(kind(), retries=1, on_error=policy)
    with caplog.at_level(logging.WARNING, logger="guerdon.rubrics"):
        assert await outcome(rubric, how) == expected
    (record,) = caplog.records
    assert f"{kind.__name__} failed; its score is {policy}" in record.getMessage()
    assert "down, call 2" in record.getMessage()
    score = await rubric.score_async(None, None)
    assert (score.value, score.status) == (expected, "failed")
    assert score.error == "ConnectionError: down, call 4"
    assert isinstance(score.exception, ConnectionError)
    assert (score["rubric"].value, score["rubric"].status) == (None, "failed")
    assert score.components() == {}


@pytest.mark.anyio
@kinds
async def test_guarded_drops_components_of_failed_attempts(kind):
    class Twice(Rubric):
        def __init__(self):
            super().__init__()
            self.first = Ranged(failures=0)
            self.second = kind(failures=1)

        async def forward(self, action, observation):
            second = self.first(action, observation)
            return second + await self.second.evaluate(action, observation)

    score = await Guarded(Twice(), retries=1).score_async(None, None)
    assert (score.value, score.status, score.error) == (1.0, "scored", None)
    assert score.components() == {"rubric": 1.0, "rubric.first": 0.5, "rubric.second": 0.5}


def test_guarded_treats_an_invalid_score_as_a_failure():
    assert Guarded(lambda a, o: float("nan"), on_error="zero")(None, None) == 0.0


def test_guarded_does_not_catch_interrupts():
    def interrupted(action, observation):
        raise KeyboardInterrupt

    for timeout in (None, 5):
        with pytest.raises(KeyboardInterrupt):
            Guarded(interrupted, timeout=timeout, on_error="zero")(None, None)


# Timeout


@pytest.mark.anyio
@both
async def test_guarded_sync_rubric_that_exceeds_the_timeout_is_an_error(stuck, how):
    with pytest.raises(TimeoutError, match=r"Stuck took longer than 0\.05 s") as caught:
        await outcome(Guarded(stuck, timeout=0.05), how)
    assert isinstance(caught.value, GuardTimeoutError)
    assert caught.value.seconds == 0.05


@pytest.mark.anyio
@both
async def test_guarded_async_rubric_that_exceeds_the_timeout_is_an_error(how):
    with pytest.raises(GuardTimeoutError, match=r"StuckAsync took longer than 0\.05 s"):
        await outcome(Guarded(StuckAsync(), timeout=0.05), how)


@pytest.mark.anyio
@both
async def test_guarded_timeouts_are_retried_and_handled_by_policies(stuck, how):
    assert await outcome(Guarded(stuck, timeout=0.05, retries=1, on_error="minimum"), how) == -1.0
    assert stuck.calls == 2
    assert await outcome(Guarded(StuckAsync(), timeout=0.05, on_error="zero"), how) == 0.0


@pytest.mark.anyio
@both
async def test_guarded_timeout_is_reported_on_the_child_too(stuck, how):
    for child in (stuck, StuckAsync()):
        rubric = Guarded(child, timeout=0.05, on_error="zero")
        if how == "call" and child is stuck:
            score = rubric.score(None, None)
        else:
            score = await rubric.score_async(None, None)
        assert (score.value, score.status) == (0.0, "failed")
        assert score.error.startswith("GuardTimeoutError: ")
        assert (score["rubric"].status, score["rubric"].value) == ("failed", None)
        assert "took longer than 0.05 s" in (score["rubric"].error or "")


@pytest.mark.anyio
async def test_guarded_timeout_names_its_path():
    rubric = Sequential(Guarded(StuckAsync(), timeout=0.05))
    with pytest.raises(GuardTimeoutError) as caught:
        await rubric.evaluate(None, None)
    assert caught.value.rubric_path == "rubric_0"


@pytest.mark.anyio
async def test_guarded_timeout_of_one_child_does_not_affect_the_others():
    rubric = WeightedSum(
        [Guarded(StuckAsync(), timeout=0.05, on_error="minimum"), Ranged(failures=0)], [1, 1]
    )
    assert await rubric.evaluate(None, None) == -0.5


@pytest.mark.anyio
async def test_guarded_distinguishes_a_timeout_error_of_the_rubric():
    async def own(action, observation):
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await Guarded(own, timeout=5)(None, None)


def test_guarded_rejects_calls_after_too_many_abandoned_ones(stuck):
    rubric = Guarded(stuck, timeout=0.01)
    for _ in range(8):
        with pytest.raises(GuardTimeoutError, match="took longer"):
            rubric(None, None)
    with pytest.raises(GuardTimeoutError, match="8 earlier calls of Stuck"):
        rubric(None, None)
    assert stuck.calls == 8


def test_guarded_late_call_does_not_write_into_a_score(stuck):
    entered, go, done = threading.Event(), threading.Event(), threading.Event()

    class Late(Rubric):
        def __init__(self):
            super().__init__()
            self.leaf = Ranged(failures=0)

        def forward(self, action, observation):
            entered.set()
            go.wait(20)
            with contextlib.suppress(Exception):
                self.leaf(action, observation)
            done.set()
            return 1.0

    rubric = Sequential(Guarded(Late(), timeout=0.05, on_error="zero"))
    score = rubric.score(None, None)
    assert entered.is_set()
    before = score.components()
    go.set()
    assert done.wait(5)
    assert score.components() == before == {"rubric_0": 0.0}
    assert score.value == 0.0


# Arguments


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "1"])
def test_guarded_rejects_a_bad_timeout(timeout):
    with pytest.raises(InvalidArgumentError, match=r"`timeout` must be"):
        Guarded(Ranged(), timeout=timeout)


@pytest.mark.parametrize("retries", [-1, 1.0, True, 101, None])
def test_guarded_rejects_bad_retries(retries):
    with pytest.raises(InvalidArgumentError, match=r"`retries` must be .*\[0, 100\]"):
        Guarded(Ranged(), retries=retries)


@pytest.mark.parametrize("policy", ["ignore", None, 0, ["zero"]])
def test_guarded_rejects_an_unknown_policy(policy):
    with pytest.raises(InvalidArgumentError, match=r"`on_error` must be .*raise.*zero.*minimum"):
        Guarded(Ranged(), on_error=policy)


def test_guarded_minimum_requires_a_declared_range():
    with pytest.raises(InvalidArgumentError, match="declares no score_range"):
        Guarded(lambda action, observation: 1.0, on_error="minimum")


def test_guarded_substituted_zero_stops_a_sequential():
    later = Ranged(failures=0)
    assert Sequential(Guarded(Ranged(), on_error="zero"), later)(None, None) == 0.0
    assert later.calls == 0
