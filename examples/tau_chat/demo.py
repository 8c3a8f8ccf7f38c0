"""Plays a conversation with scripted models against a served environment.

Run it::

    python -m examples.tau_chat.demo
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.tau_chat.scripted_model import Failed, ScriptedModel
from guerdon import GenericEnvClient, RewardConfig

__all__ = ["ACTIONS", "TRAVELLER", "VERDICT", "main", "reward", "reward_at"]

HERE = Path(__file__).parent

# The actions of a good agent.
ACTIONS: list[dict[str, Any]] = [
    {"content": "Gladly. What is the code of your booking?"},
    {"type": "call_tool", "tool_name": "read_booking", "arguments": {"code": "RZ4K"}},
    {
        "type": "call_tool",
        "tool_name": "search_flights",
        "arguments": {"route": "Basel-Porto", "date": "13 June"},
    },
    {"content": "At 10:05 there are seats: 75 euros in all, with the fee. Shall I change it?"},
    {
        "type": "call_tool",
        "tool_name": "change_flight",
        "arguments": {"code": "RZ4K", "number": "AL 214"},
    },
    {"content": "Done: AL 214 on 13 June, 10:05. Anything else?"},
]

# The replies of the traveller's model.
TRAVELLER = [
    "I have to fly to Porto a day later, in the morning.",
    "RZ4K. Quickly, please.",
    "Yes, do that.",
    "No. Thank you. [hangs up]",
]

VERDICT = json.dumps({"score": 0.9, "reasoning": "It stated the price and waited for the yes."})


def reward(services: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reward configuration in ``reward.yaml`` with some services replaced.

    Example:
        >>> from examples.tau_chat.demo import reward
        >>> served = {"type": "mcp", "endpoint": "http://localhost:9000/mcp", "tool": "judge"}
        >>> reward({"judge": served})["mcp_services"]["judge"]["type"]
        'mcp'

    Args:
        services: The services to replace, by name.
    """
    config = RewardConfig.from_file(HERE / "reward.yaml").to_dict()
    return config | {"mcp_services": config["mcp_services"] | dict(services)}


def reward_at(endpoint: str, **settings: Any) -> dict[str, Any]:
    """Return the reward configuration with its models at another address.

    Args:
        endpoint: The address.
        **settings: Further settings of both services, such as ``retries``.
    """
    services = reward({})["mcp_services"]
    return reward(
        {name: {**each, "endpoint": endpoint, **settings} for name, each in services.items()}
    )


def main() -> int:
    """Serve the environment, play the conversation, and print it with its reward."""
    # The first request gets a 429, which the client retries.
    script = {"traveller": [Failed(429), *TRAVELLER], "judge": [VERDICT]}
    with ScriptedModel(script) as model:
        served = GenericEnvClient.from_module(str(HERE), config=reward_at(model.endpoint))
        with served.sync() as chat:
            print(f"traveller: {chat.reset().observation['content']}")
            for action in ACTIONS:
                result = chat.step(action)
        print("\n".join(result.observation["transcript"].splitlines()[2:]))
        print(f"\nreward {result.reward:g}, of {result.metadata['reward_components']}")
    return 0 if result.done else 1


if __name__ == "__main__":
    sys.exit(main())
