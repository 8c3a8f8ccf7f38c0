"""``guerdon judge-server``: serve a model as a judge to MCP clients."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from guerdon._http import is_loopback, shown_url
from guerdon.cli import options
from guerdon.cli.console import warn
from guerdon.errors import InvalidArgumentError, ServiceUnavailableError

if TYPE_CHECKING:
    from guerdon.rubrics.judge.template import Template
    from guerdon.services.model_service import ModelService

# Seconds for checking that the model is available.
CHECK_S = 5.0
# The options of HTTP.
OF_HTTP = ("host", "port", "token")


def judge_server(
    context: typer.Context,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            "-e",
            metavar="URL",
            help="The address of a server with OpenAI's protocol.",
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="M", help="The name of the model.")
    ],
    template: Annotated[
        Path,
        typer.Option(
            "--template",
            "-t",
            metavar="FILE",
            help="The prompt, with placeholders such as {action}, {observation}, "
            "{observation.question}, which are the arguments of the tool.",
        ),
    ],
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve on stdin and stdout, to the parent process.")
    ] = False,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8000,
    token: options.Token = None,
    name: Annotated[str, typer.Option(help="The name of the server.")] = "judge",
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment variable with the endpoint's key."),
    ] = None,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="The sampling temperature, from 0 to 2.")
    ] = 0.0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="The maximum length of an answer.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds for one attempt.")] = 60.0,
    retries: Annotated[
        int,
        typer.Option(metavar="N", help="Retries after 429, 5xx, a timeout or a lost connection."),
    ] = 3,
    concurrency: Annotated[
        int, typer.Option(metavar="N", help="The maximum number of concurrent requests.")
    ] = 64,
) -> None:
    """Serve a model as a judge to any MCP client: a tool that returns a score and the reasoning.

    The tool is called judge, and its arguments are the placeholders of the template. Their values
    are fenced, so that nothing in them passes for a verdict. The answer of the model is parsed
    strictly: without a clear verdict from 0 to 1, the call fails. It is served over streamable
    HTTP, at /mcp, until SIGTERM or ctrl-C, which lets running calls finish; or with --stdio on
    stdin and stdout, until stdin ends.
    """  # fmt: skip
    from guerdon.services import make_judge_server, serve_mcp, serve_mcp_stdio
    from guerdon.services.config import parse_service
    from guerdon.services.model_service import ModelService

    prompt = _template(template)
    settings = {
        "type": "openai_llm",
        "endpoint": endpoint,
        "model": model,
        "api_key_env": api_key_env,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "timeout_s": timeout,
        "retries": retries,
        "concurrency": concurrency,
    }
    service = ModelService(model, parse_service((), settings))
    if stdio:
        _refuse_http_options(context)
    else:
        options.check_token(token)
    _check_model(service)
    with service.model() as chat:
        server = make_judge_server(chat, prompt, name=name)
        if stdio:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _end)
            serve_mcp_stdio(server)
            return
        if token is None and not is_loopback(host):
            warn(f"anyone who can reach {host} can use this server; --token requires a token")
        serve_mcp(
            server,
            host=host,
            port=port,
            token=token,
            ready=lambda url: print(f"judging with {model} at {url}", flush=True),
        )


def _template(path: Path) -> Template:
    from guerdon.rubrics.judge.template import Template

    try:
        template = Template(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidArgumentError(f"--template {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"--template {path} is not UTF-8: {error}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"--template {path}: {error}") from error
    if not template.fields:
        raise InvalidArgumentError(
            f"--template {path} must have at least one placeholder, such as {{action}}"
        )
    return template


def _refuse_http_options(context: typer.Context) -> None:
    for name in OF_HTTP:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidArgumentError(f"--{name} can't be used with --stdio")


def _check_model(service: ModelService) -> None:
    """Warn if the model isn't available; it may start later than the server."""
    from guerdon._background import run

    try:
        run(service.check(CHECK_S, for_tool=False))
    except ServiceUnavailableError as error:
        warn(f"{error}; calls are sent to it anyway ({shown_url(service.config.endpoint)})")


def _end(number: int, frame: object) -> NoReturn:
    # At once: Python would wait for a thread that waits for a line, which may never come.
    sys.stdout.flush()
    os._exit(0)
