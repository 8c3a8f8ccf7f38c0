"""A style judge as an MCP server, and the rubric that calls it.

Any MCP client can use the server's tool ``judge``. Run the server in front of an endpoint with
OpenAI's protocol, and serve the coding environment with a reward that calls the tool::

    python -m examples.reward_pipelines.style_judge http://localhost:8000 my-model --port 9000
    guerdon serve examples/coding_env --reward examples/reward_pipelines/judged_coding_reward.yaml

``guerdon judge-server`` serves the same tool, with ``--template`` and the path of
``style_prompt.txt``. The rubric works with any service of that name, such as a model that is called
directly, with the prompt in the reward file.
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
        llm_service: The name of a service in the reward file.
    """

    llm_service: str = "style_judge"


class JudgedStyle(LLMJudge):
    """A model's score of the program's style.

    Example:
        >>> from examples.reward_pipelines.style_judge import JudgedStyle, StyleConfig
        >>> from guerdon import MCPClient
        >>> services = MCPClient({"style_judge": "http://localhost:9000/mcp"})
        >>> JudgedStyle(StyleConfig(), services).asked
        ['style_judge']

    Args:
        config: The name of the service.
        mcp_client: The client of the services.
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
    parser.add_argument("endpoint", help="the URL of a server with OpenAI's protocol")
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=9000, help="0 chooses a free port")
    options = parser.parse_args(arguments)
    with ChatModel(options.endpoint, options.model) as chat:
        server = make_judge_server(chat, PROMPT, name="style_judge")
        serve_mcp(server, port=options.port, ready=lambda url: print(f"at {url}", flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
