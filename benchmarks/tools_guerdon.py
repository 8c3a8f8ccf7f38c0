"""A server of guerdon with a tool; ``python -m benchmarks.tools_guerdon`` prints its address.

`benchmarks.tools_openenv` is a server of openenv with the same tool.
"""

from __future__ import annotations

import logging

from guerdon import ToolEnvironment, ToolErrors, create_app, serve, tool


class Echo(ToolEnvironment):
    """Repeats a text, by a tool."""

    def __init__(self) -> None:
        super().__init__(rubric=ToolErrors())

    @tool
    def echo(self, text: str) -> str:
        """Repeat a text."""
        return text


def main() -> None:
    logging.basicConfig(level="CRITICAL")
    serve(create_app(Echo), port=0, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
