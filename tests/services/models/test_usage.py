"""Counters of what was asked, and what it cost."""

from guerdon.services.models.usage import Prices, Usage


def test_tokens_are_counted_and_cost_what_they_cost():
    usage = Usage(prices=Prices(prompt=2.0, completion=8.0))
    usage.count(1000, 500)
    usage.count(1000, 0)
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (2, 2000, 500)
    assert usage.cost == (2000 * 2.0 + 500 * 8.0) / 1_000_000


def test_without_prices_the_cost_is_not_known():
    usage = Usage()
    usage.count(1000, 500)
    assert usage.cost is None


def test_an_answer_that_does_not_say_its_tokens_is_counted_as_such():
    usage = Usage()
    usage.count(None, None)
    assert (usage.calls, usage.without_usage, usage.prompt_tokens) == (1, 1, 0)
