"""``guerdon judge-server``: a model as a judge that any MCP client can ask."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

from guerdon.cli.console import console
from guerdon.errors import InvalidArgumentError, ServiceUnavailableError

if TYPE_CHECKING:
    from guerdon.rubrics.judge.template import Template
    from guerdon.services import OpenAIService

__all__ = ["judge_server"]

# Seconds that looking whether the model is there may take.
LOOK_S = 5.0
# What says where to serve, and so means nothing on stdin and stdout.
OF_HTTP = ("host", "port", "token")


def judge_server(
    context: typer.Context,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            "-e",
            metavar="URL",
            show_default=False,
            help="The address of a server that speaks OpenAI's protocol.",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", metavar="M", show_default=False, help="The name of the model."
        ),
    ],
    template: Annotated[
        Path,
        typer.Option(
            "--template",
            "-t",
            metavar="FILE",
            show_default=False,
            help="The prompt, with places such as {action}, {observation}, "
            "{observation.question}; what fills them in are the tool's arguments.",
        ),
    ],
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve on stdin and stdout, to who started it.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; the loopback by default.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="0 lets the system choose.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="GUERDON_TOKEN",
            show_default=False,
            help="What clients must send as bearer token. The variable is safer: a command line "
            "can be seen by others.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What the server calls itself.")] = "judge",
    api_key_env: Annotated[
        str | None,
        typer.Option(
            "--api-key-env",
            metavar="NAME",
            show_default=False,
            help="The environment variable with the endpoint's key.",
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="T", help="Of sampling, from 0 to 2.")
    ] = 0.0,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", min=1, show_default=False, help="The longest answer of the model."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Seconds for one attempt.")
    ] = 60.0,
    retries: Annotated[
        int,
        typer.Option(
            "--retries",
            metavar="N",
            help="How often to ask again after 429, 5xx, a timeout or a lost connection.",
        ),
    ] = 3,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", metavar="N", help="Questions under way at the same time."),
    ] = 64,
) -> None:
    """Serve a model as a judge, to any MCP client: a tool that gives a score and the reasoning.

    The tool is called judge, and its arguments are what the template has places for. What fills
    them in is fenced: nothing in it can pass for a verdict. What the model says is read strictly:
    without a clear verdict from 0 to 1, the call fails. It is served over streamable HTTP, at
    /mcp, until SIGTERM or ctrl-C, which lets running calls end; or with --stdio on stdin and
    stdout, until stdin ends.
    """  # fmt: skip
    prompt = _template(template)
    config = _config(
        endpoint=endpoint,
        model=model,
        api_key_env=api_key_env,
        temperature=temperature,
        max_tokens=max_tokens,
        timeout_s=timeout,
        retries=retries,
        concurrency=concurrency,
    )
    if stdio:
        _refuse_http(context)
    elif os.environ.get("GUERDON_TOKEN") == "" and token is None:
        raise InvalidArgumentError("GUERDON_TOKEN is set and empty; give a token, or unset it")
    _look(config)
    if stdio:
        _on_stdio(config, prompt, name)
    else:
        _over_http(config, prompt, name, host=host, port=port, token=token)


def _template(path: Path) -> Template:
    from guerdon.rubrics.judge.template import Template

    try:
        template = Template(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidArgumentError(f"--template {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"--template {path} is no text in UTF-8: {error}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"--template {path}: {error}") from error
    if not template.fields:
        raise InvalidArgumentError(
            f"--template {path} has no place for what is judged; it takes at least one, such as "
            "{action}"
        )
    return template


def _config(**settings: Any) -> OpenAIService:
    from guerdon.services.config import parse_service

    return parse_service("", {"type": "openai_llm", **settings})  # type: ignore[return-value]


def _refuse_http(context: typer.Context) -> None:
    for name in OF_HTTP:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidArgumentError(f"--{name} is of HTTP, and says nothing with --stdio")


def _look(config: OpenAIService) -> None:
    """Tell whether the model is there; it may come later than the server."""
    from guerdon._background import run
    from guerdon.services.model_service import ModelService

    try:
        run(ModelService(config.model, config).check(LOOK_S, for_tool=False))
    except ServiceUnavailableError as error:
        _warn(f"{error}; it is asked all the same at each call ({config.endpoint})")


def _over_http(
    config: OpenAIService,
    template: Template,
    name: str,
    *,
    host: str,
    port: int,
    token: str | None,
) -> None:
    from guerdon.envs.server.access import is_loopback
    from guerdon.services import make_judge_server, serve_mcp
    from guerdon.services.model_service import ModelService

    if token is None and not is_loopback(host):
        _warn(f"whoever reaches {host} can use this judge; --token asks for one")
    with ModelService(config.model, config).model() as chat:
        server = make_judge_server(chat, template, name=name)
        serve_mcp(
            server,
            host=host,
            port=port,
            token=token,
            ready=lambda url: print(f"judging with {config.model} at {url}", flush=True),
        )


def _on_stdio(config: OpenAIService, template: Template, name: str) -> None:
    from guerdon.services import make_judge_server, serve_mcp_stdio
    from guerdon.services.model_service import ModelService

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    with ModelService(config.model, config).model() as chat:
        serve_mcp_stdio(make_judge_server(chat, template, name=name))


def _end(number: int, frame: object) -> NoReturn:
    # At once: a thread waits for a line that may never come, and Python waits for the thread.
    sys.stdout.flush()
    os._exit(0)


def _warn(said: str) -> None:
    text = f"[bold yellow]warning:[/] {escape(said)}"
    console(stderr=True).print(text, highlight=False, soft_wrap=True)
