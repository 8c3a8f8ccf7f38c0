"""/metrics: what was done, counted right."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from guerdon import Observation, Rubric, WeightedSum
from guerdon.envs.server.monitoring import MAX_COMPONENTS, OTHERS, Metrics
from tests.envs.server.worlds import CLOSE, RESET, STATE, Echo, Length, step


def parsed(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_an_episode(serve, eventually):
    class Failing(Rubric):
        def forward(self, action, observation):
            if action.text == "bad":
                raise ValueError("no luck")
            return 1.0

    class Scored(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = WeightedSum([Length(), Failing()], [0.5, 0.5])

    served = serve(Scored)
    client, other = served.client(), served.client()
    for each in (client, other):
        each.ask(RESET)
    for text in ("12345", "1234567890", "bad"):
        client.ask(step(text))
    client.error({"type": "dance"})
    client.error("{")
    client.ask(STATE)
    assert served.http.post("/reset").status_code == 200
    assert served.http.post("/step", json={"action": {"text": "12345"}}).status_code == 200
    other.say(CLOSE)
    other.ended()
    eventually(lambda: served.sessions() == 1)
    numbers = parsed(served.http.get("/metrics").text)

    def number(name, **labels):
        return numbers[(f"guerdon_{name}", *sorted(labels.items()))]

    assert number("sessions") == 1
    assert number("sessions_opened_total") == 2
    assert number("sessions_closed_total", reason="client closed") == 1
    assert number("calls_total", method="reset") == 3
    assert number("calls_total", method="step") == 4
    assert number("step_seconds_count") == 4
    assert number("step_seconds_bucket", le="+Inf") == 4
    assert 0 < number("step_seconds_sum") < 10
    assert number("failures_total", kind="reward") == 1
    assert number("failures_total", kind="unknown_type") == 1
    assert number("failures_total", kind="invalid_json") == 1
    assert number("reward_count", component="") == 3
    assert number("reward_sum", component="") == pytest.approx(0.75 + 1.0 + 0.75)
    components = {
        dict(labels)["component"] for name, *labels in numbers if name == "guerdon_reward_count"
    }
    assert len(components) == 3
    client.close()
    served.empty()


def scored(components):
    return Observation(reward=1.0, metadata={"reward_components": components})


def test_metrics_buckets_are_cumulative():
    metrics = Metrics()
    for seconds in (0.0001, 0.0002, 0.3, 1000.0):
        metrics.observe_step(seconds, None)
    numbers = parsed(metrics.text().decode())
    buckets = {
        float(labels[0][1]): value
        for (name, *labels), value in numbers.items()
        if name.endswith("_bucket")
    }
    assert buckets[0.0001] == 1
    assert buckets[0.0005] == 2
    assert buckets[0.5] == 3
    assert buckets[60.0] == 3
    assert buckets[float("inf")] == 4
    assert list(buckets.values()) == sorted(buckets.values())


def test_metrics_bound_the_number_of_components():
    metrics = Metrics()
    for n in range(1000):
        metrics.observe_step(0.1, scored({f"name{n}": 0.5}))
    numbers = parsed(metrics.text().decode())
    counts = {
        dict(labels)["component"]: value
        for (name, *labels), value in numbers.items()
        if name == "guerdon_reward_count"
    }
    assert len(counts) <= MAX_COMPONENTS + 1
    assert counts[""] == 1000
    assert sum(counts.values()) == 2000
    assert counts[OTHERS] > 700


@pytest.mark.parametrize("name", ['a"b', "a\\b", "ä.ö", "a{b}", " "])
def test_metrics_escape_names_of_components(name):
    metrics = Metrics()
    metrics.observe_step(0.1, scored({name: 0.25}))
    numbers = parsed(metrics.text().decode())
    assert numbers[("guerdon_reward_sum", ("component", name))] == 0.25


def test_metrics_leave_out_components_that_are_no_finite_numbers():
    metrics = Metrics()
    values = {"nan": math.nan, "infinite": math.inf, "huge": 10**400, "text": "1"}
    metrics.observe_step(0.1, scored(values | {"style": 0.5}))
    numbers = parsed(metrics.text().decode())
    counted = {dict(labels)["component"] for name, *labels in numbers if "reward" in name}
    assert counted == {"", "style"}


def test_metrics_before_the_first_step(serve):
    served = serve()
    assert served.sessions() == 0
    assert served.number("guerdon_step_seconds_count") == 0
    assert served.number("guerdon_calls_total", method="step") is None
    assert served.http.get("/metrics").headers["content-type"].startswith("text/plain; version=")


def test_metrics_count_environments_that_hang(serve, hold, eventually):
    class Hangs(Echo):
        def step(self, action, **kwargs):
            hold.wait()
            return super().step(action)

    served = serve(Hangs, step_timeout_s=0.1)
    client = served.client()
    client.ask(RESET)
    assert served.number("guerdon_hanging_environments") == 0
    client.error(step())
    assert served.number("guerdon_hanging_environments") == 1
    hold.set()
    eventually(lambda: served.number("guerdon_hanging_environments") == 0)
