"""`MCPClient`: tools and models behind names, whatever it is that stands behind them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from guerdon._background import run
from guerdon.errors import InvalidArgumentError, ServiceError, ServiceUnavailableError
from guerdon.services.bridging import on_background
from guerdon.services.config import CallSettings, McpService, OpenAIService
from guerdon.services.describing import SdkService, parse_service, parse_settings
from guerdon.services.mcp.tool_service import ToolService, need_mcp
from guerdon.services.models.model_service import ModelService
from guerdon.services.service import Service
from guerdon.services.service_tool import ServiceTool

if TYPE_CHECKING:
    from guerdon.services.models.chat import ChatModel

__all__ = ["MCPClient"]

T = TypeVar("T")

TYPES = ("mcp", "openai_llm")
# What says how a service is called, and nothing of what it answers.
HOW_CALLED = {*CallSettings.model_fields, "connections", "private"}


class MCPClient:
    """Calls services by their names: tools of MCP servers, and language models.

    It needs the extra ``judge``: ``pip install 'guerdon[judge]'``. A service is connected when it
    is called first, and again when its connection was lost. Any number of threads, tasks and event
    loops may share a client; copies of it are the same one, and one that is pickled connects
    anew where it is unpickled.

    Example:
        >>> from mcp.server.mcpserver import MCPServer
        >>> from guerdon import MCPClient
        >>> server = MCPServer("arithmetic")
        >>> @server.tool()
        ... def double(number: int) -> str:
        ...     return str(2 * number)
        >>> with MCPClient({"double": server}) as client:
        ...     client.call_tool("double", number=21)
        '42'

    Args:
        services: By name, an `McpService` or an `OpenAIService`, a dictionary that describes one,
            as under ``mcp_services`` in a reward's file, the address of an MCP server, the command
            (a list of words) of one that speaks on its stdin and stdout, or a server object of the
            SDK's. Or one of these without a name: then a call names the tool.
        timeout_s: Seconds that an attempt may take, over 0; a description says its own.
        concurrency: How many calls of a service may run at once; a description says its own.
        retries: How often a call is tried again where a server was away or too slow; a description
            says its own.

    Raises:
        RewardConfigError: A description can't be meant; it says everything that is wrong.
        InvalidArgumentError: What is given as a service is none.
    """

    def __init__(
        self,
        services: Any,
        *,
        timeout_s: float = 60.0,
        concurrency: int = 64,
        retries: int = 0,
    ) -> None:
        settings = parse_settings(timeout_s=timeout_s, concurrency=concurrency, retries=retries)
        named = isinstance(services, Mapping) and services.get("type") not in TYPES
        if named:
            made = [_service(_name(name), each, settings) for name, each in services.items()]
        else:
            made = [_service(None, services, settings)]
        self._begin(made, is_named=named)

    def _begin(self, services: list[Service], *, is_named: bool) -> None:
        self._services = {service.name: service for service in services}
        self._is_named = is_named
        self._fingerprints: dict[str, str] = {}
        weakref.finalize(self, _abandon, services).atexit = False  # then, each closes by itself

    @property
    def services(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self._services)

    def public(self) -> dict[str, dict[str, Any]]:
        """What may be told of the services to whoever asks; no secrets, no private prompts."""
        return {name: service.config.public() for name, service in self._services.items()}

    def fingerprint(self, service: str) -> str:
        """A digest of everything that a service's answers depend on, as far as it is known here.

        Of a server object of the SDK's, that is its name alone.

        Example:
            >>> from guerdon import MCPClient
            >>> first = MCPClient({"judge": "http://localhost:8000/mcp"})
            >>> second = MCPClient({"judge": "http://localhost:8001/mcp"})
            >>> first.fingerprint("judge") == second.fingerprint("judge")
            False

        Raises:
            InvalidArgumentError: There is no such service.
        """
        known = self._fingerprints.get(service)
        if known is None:
            known = self._fingerprints[service] = _fingerprint(self._service(service).config)
        return known

    def chat_model(self, service: str) -> ChatModel | None:
        """The model behind a name, where one is and has no prompt of its own.

        An `LLMJudge` asks it itself, as it asks one at an address.

        Example:
            >>> from guerdon import MCPClient
            >>> from guerdon.services import OpenAIService
            >>> model = OpenAIService(endpoint="http://localhost:8000", model="qwen3-8b")
            >>> MCPClient({"judge": model}).chat_model("judge").name
            'qwen3-8b at http://localhost:8000/v1'

        Raises:
            InvalidArgumentError: There is no such service.
            MissingExtraError: The package ``openai`` isn't there.
        """
        return self._service(service).chat_model()

    def call_tool(self, service: str, /, **arguments: Any) -> dict[str, Any] | str:
        """Call a service.

        Args:
            service: Its name; of a client without names, the tool's.
            **arguments: What the tool takes. A model's are what its prompt has places for, or
                ``prompt`` or ``messages`` where it has no prompt.

        Returns:
            A dictionary where there is structured content, text otherwise.

        Raises:
            InvalidArgumentError: There is no such service, or it can't take the arguments.
            ServiceUnavailableError: It isn't there, or no longer.
            ServiceTimeoutError: It took too long.
            ServiceError: It failed in another way; the message has the tool's own words.
            AsyncRubricError: It was called from async code that the background loop runs.
            MissingExtraError: A package of the extra isn't there.
        """
        return run(self._call(service, arguments))

    async def call_tool_async(self, service: str, /, **arguments: Any) -> dict[str, Any] | str:
        """Like `call_tool`, in async code, on any event loop."""
        return await on_background(self._call(service, arguments))

    def list_tools(self, service: str | None = None) -> list[ServiceTool]:
        """What there is to call: everything, or what one service offers.

        Args:
            service: The service's name; None for all of them.

        Raises:
            ServiceError: A service isn't there.
        """
        return run(self._tools(service))

    async def list_tools_async(self, service: str | None = None) -> list[ServiceTool]:
        """Like `list_tools`, in async code, on any event loop."""
        return await on_background(self._tools(service))

    def check(self, *, timeout_s: float = 10.0) -> None:
        """See whether every service is there, and has the tool that is to be called.

        Args:
            timeout_s: Seconds that each may take.

        Raises:
            ServiceUnavailableError: It names each that isn't, and says why.
        """
        run(self._check(timeout_s))

    async def check_async(self, *, timeout_s: float = 10.0) -> None:
        """Like `check`, in async code, on any event loop."""
        await on_background(self._check(timeout_s))

    def close(self) -> None:
        """Close the connections and end the programs; the next call opens new ones."""
        run(self._close())

    async def close_async(self) -> None:
        """Like `close`, in async code."""
        await on_background(self._close())

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        if self._is_named:
            return await self._service(name).call(None, arguments)
        (service,) = self._services.values()
        return await service.call(name, arguments)

    async def _tools(self, name: str | None) -> list[ServiceTool]:
        asked = [self._service(name)] if name is not None else self._services.values()
        return [tool for found in await _each(asked, _offered) for tool in found]

    async def _check(self, timeout_s: float) -> None:
        limit = parse_settings(timeout_s=timeout_s).timeout_s
        problems: list[ServiceError] = []

        async def look(service: Service) -> None:
            try:
                await service.check(limit, for_tool=self._is_named)
            except ServiceError as error:
                problems.append(error)

        await _each(self._services.values(), look)
        if len(problems) == 1:
            raise problems[0]
        if problems:
            message = f"{len(problems)} services aren't there: " + "; ".join(map(str, problems))
            raised = ServiceUnavailableError(message, service=problems[0].service)
            for note in (note for each in problems for note in getattr(each, "__notes__", ())):
                raised.add_note(note)
            raise raised

    async def _close(self) -> None:
        await _each(self._services.values(), lambda service: service.close())

    def _service(self, name: str) -> Service:
        if name in self._services:
            return self._services[name]
        near = get_close_matches(str(name), self._services, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        there = ", ".join(map(repr, self._services)) or "none"
        raise InvalidArgumentError(f"there is no service {name!r:.200}; there are {there}{hint}")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # its limits and its connections are for all who use it

    def __getstate__(self) -> dict[str, Any]:
        return {"services": list(self._services.values()), "is_named": self._is_named}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._begin(state["services"], is_named=state["is_named"])

    def __repr__(self) -> str:
        return f"MCPClient({', '.join(self._services)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close_async()


def _service(name: str | None, given: Any, settings: CallSettings) -> Service:
    """Make a service of what was given for it."""
    where = "" if name is None else f"mcp_services.{name}"
    config: McpService | OpenAIService | SdkService
    if isinstance(given, (Mapping, McpService, OpenAIService)):
        config = parse_service(where, given)
    elif isinstance(given, (str, list, tuple)):
        key = "endpoint" if isinstance(given, str) else "command"
        config = parse_service(where, {"type": "mcp", key: given, **settings.model_dump()})
    else:
        config = _of_sdk(where, given, settings)
    if isinstance(config, OpenAIService):
        return ModelService(name or config.model, config)
    return ToolService(name or _address(config), config)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"a service's name is a text that isn't empty, not {name!r}")
    return name


def _of_sdk(where: str, given: Any, settings: CallSettings) -> SdkService:
    need_mcp()
    from mcp import StdioServerParameters
    from mcp.server import MCPServer, Server

    if isinstance(given, (MCPServer, Server, StdioServerParameters)):
        return SdkService(given, settings)
    raise InvalidArgumentError(
        f"{where or 'the service'} is {type(given).__name__}; it takes an address, a command (a "
        "list of words), an McpService or OpenAIService, a dictionary that describes one, or a "
        "server object of mcp"
    )


def _fingerprint(config: McpService | OpenAIService | SdkService) -> str:
    if isinstance(config, SdkService):
        told = config.public()
    else:
        told = config.model_dump(mode="json", exclude=HOW_CALLED)
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()


def _address(config: McpService | SdkService) -> str:
    """What a service without a name is called."""
    told = config.public()
    return str(told.get("endpoint") or told.get("command") or told.get("server"))


async def _offered(service: Service) -> list[ServiceTool]:
    return await service.tools()


async def _each(
    services: Iterable[Service], work: Callable[[Service], Coroutine[Any, Any, T]]
) -> list[T]:
    """Do something with each at the same time, to its end, and raise what went wrong first."""
    done = await asyncio.gather(*map(work, services), return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], done)


def _abandon(services: list[Service]) -> None:
    for service in services:
        service.abandon()
