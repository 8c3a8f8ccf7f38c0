"""The demo: a conversation over the wire, with models that say what a script tells them to.

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

# What a good agent does.
ACTIONS: list[dict[str, Any]] = [
    {"content": "Gladly. What is the code of your booking?"},
    {"type": "tool_call", "name": "read_booking", "arguments": {"code": "RZ4K"}},
    {
        "type": "tool_call",
        "name": "search_flights",
        "arguments": {"route": "Basel-Porto", "date": "13 June"},
    },
    {"content": "At 10:05 there are seats: 75 euros in all, with the fee. Shall I change it?"},
    {
        "type": "tool_call",
        "name": "change_flight",
        "arguments": {"code": "RZ4K", "number": "AL 214"},
    },
    {"content": "Done: AL 214 on 13 June, 10:05. Anything else?"},
]

# What the traveller's model says, from the first call on.
TRAVELLER = [
    "I have to fly to Porto a day later, in the morning.",
    "RZ4K. Quickly, please.",
    "Yes, do that.",
    "No. Thank you. [hangs up]",
]

VERDICT = json.dumps({"score": 0.9, "reasoning": "It named the price and waited for the yes."})


def reward(services: Mapping[str, Any]) -> dict[str, Any]:
    """The reward of ``reward.yaml``, with other services behind its names.

    Example:
        >>> from examples.tau_chat.demo import reward
        >>> served = {"type": "mcp", "endpoint": "http://localhost:9000/mcp", "tool": "judge"}
        >>> reward({"judge": served})["mcp_services"]["judge"]["type"]
        'mcp'

    Args:
        services: By name; those that aren't named stay as they are.
    """
    config = RewardConfig.from_file(HERE / "reward.yaml").to_dict()
    return config | {"mcp_services": config["mcp_services"] | dict(services)}


def reward_at(endpoint: str, **settings: Any) -> dict[str, Any]:
    """The same reward, with its models at another address.

    Args:
        endpoint: The address.
        **settings: What else is different of both services, such as ``retries``.
    """
    services = reward({})["mcp_services"]
    return reward(
        {name: {**each, "endpoint": endpoint, **settings} for name, each in services.items()}
    )


def main() -> int:
    """Serve the environment, play the conversation, and print it with its reward."""
    # The traveller's model has too much to do once; the client asks again.
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
