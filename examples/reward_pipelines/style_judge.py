"""A style judge as an MCP server, and the rubric that asks it.

The server is a real one: its tool ``judge`` is found by ``tools/list`` and can be used by any MCP
client. Run it before an endpoint that speaks OpenAI's protocol, and serve the coding environment
with a reward that asks it::

    python -m examples.reward_pipelines.style_judge http://localhost:8000 my-model --port 9000
    guerdon serve examples/coding_env --reward examples/reward_pipelines/judged_coding_reward.yaml

``guerdon judge-server`` serves the same, with ``--template`` and the path of ``style_prompt.txt``.
The rubric is independent of what answers: the same name may be a model that is asked directly, with
the prompt in the reward's file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from guerdon import LLMJudge, MCPClient
from guerdon.services import ChatModel, make_judge_server, serve_mcp

__all__ = ["JudgedStyle", "PROMPT", "REWARD", "StyleConfig", "main"]

REWARD = Path(__file__).with_name("judged_coding_reward.yaml")

PROMPT = Path(__file__).with_name("style_prompt.txt").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class StyleConfig:
    """The configuration of `JudgedStyle`.

    Example:
        >>> from examples.reward_pipelines.style_judge import StyleConfig
        >>> StyleConfig().llm_service
        'style_judge'

    Attributes:
        llm_service: The name of a service of the reward's file.
    """

    llm_service: str = "style_judge"


class JudgedStyle(LLMJudge):
    """The program reads well, in the words of a model.

    Example:
        >>> from examples.reward_pipelines.style_judge import JudgedStyle, StyleConfig
        >>> from guerdon import MCPClient
        >>> services = MCPClient({"style_judge": "http://localhost:9000/mcp"})
        >>> JudgedStyle(StyleConfig(), services).asked
        ['style_judge']

    Args:
        config: The service that it asks.
        mcp_client: The services.
    """

    def __init__(self, config: StyleConfig, mcp_client: MCPClient) -> None:
        super().__init__(
            None,  # the service has the prompt
            config.llm_service,
            mcp_client=mcp_client,
            fields={"task": "observation.prompt", "program": "action.program"},
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the judge until SIGTERM or ctrl-C."""
    parser = argparse.ArgumentParser(description="Serves a judge of style as an MCP server.")
    parser.add_argument("endpoint", help="a server that speaks OpenAI's protocol")
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=9000, help="0 lets the system choose")
    given = parser.parse_args(arguments)
    with ChatModel(given.endpoint, given.model) as chat:
        server = make_judge_server(chat, PROMPT, name="style_judge")
        serve_mcp(server, port=given.port, ready=lambda url: print(f"at {url}", flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
