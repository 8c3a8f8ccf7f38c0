"""A cluster of two nodes on this machine, which ends with the tests."""

import json
import os
import textwrap

import pytest

# Before Ray is imported; the nodes and other drivers inherit it.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}

import ray
from ray.cluster_utils import Cluster

# Of each node. Ray Data's shuffle occupies CPUs besides those that score, so there are more than
# this machine may have. Ray requires at least 75 MiB for its objects.
NODE = {"num_cpus": 3, "object_store_memory": 100 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="session")
def cluster():
    """A cluster of two nodes, to which all drivers connect."""
    made = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        made.add_node(**NODE)
        made.wait_for_nodes()
        os.environ["RAY_ADDRESS"] = made.address
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def node(cluster):
    """A further node with one CPU, which a test may remove."""
    made = cluster.add_node(**NODE | {"num_cpus": 1})
    cluster.wait_for_nodes()
    yield made
    if made in cluster.worker_nodes:
        cluster.remove_node(made)


@pytest.fixture
def driver(cluster):
    """A connection of this process to the cluster."""
    ray.init(logging_level="WARNING")
    yield
    ray.shutdown()


@pytest.fixture
def anyio_backend():
    return "asyncio"


def rollout(number):
    """A rollout in a group of four; every tenth can't be scored."""
    asked = {"role": "user", "content": "6 × 7?"}
    row = {"id": f"q{number}", "group": f"g{number // 4}", "messages": [
        asked, {"role": "assistant", "content": f"A: {number % 3 + 40}"},
        asked, {"role": "assistant", "content": f"A: {number % 2 + 41}"},
    ]}  # fmt: skip
    return row if number % 10 == 9 else row | {"ground_truth": "42"}


@pytest.fixture
def rollouts(tmp_path):
    """Writes rollouts to a file, and returns its path."""

    def rollouts(count):
        path = tmp_path / "rollouts.jsonl"
        path.write_text("".join(json.dumps(rollout(each)) + "\n" for each in range(count)))
        return str(path)

    return rollouts


@pytest.fixture
def reward(tmp_path):
    """Writes a file with a reward, and returns its spec."""

    def reward(text):
        path = tmp_path / "reward.py"
        path.write_text(textwrap.dedent(text))
        return f"{path}:reward"

    return reward
