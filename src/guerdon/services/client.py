"""`MCPClient`: calls services by name, MCP tools and chat models alike."""

from __future__ import annotations

import asyncio
import hashlib
import json
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from guerdon._background import SharedClient, on_background, run
from guerdon._loading import import_extra
from guerdon._problems import Place, place_text
from guerdon._validation import did_you_mean, shown
from guerdon.errors import (
    InvalidArgumentError,
    ServiceError,
    ServiceUnavailableError,
)
from guerdon.services.config import (
    CALL_SETTINGS,
    SDK_SERVICE,
    CallSettings,
    McpService,
    OpenAIService,
    SdkService,
    ServiceTool,
    parse_service,
)

if TYPE_CHECKING:
    from guerdon.services.chat_model import ChatModel
    from guerdon.services.mcp_service import ToolService
    from guerdon.services.model_service import ModelService

    Service: TypeAlias = ModelService | ToolService

__all__ = ["MCPClient"]

T = TypeVar("T")

TYPES = ("mcp", "openai_llm")
# Settings that don't change what a service answers.
HOW_CALLED = {*CallSettings.model_fields, "connections", "private"}


class MCPClient(SharedClient):
    """Calls services by name: tools of MCP servers, and chat models.

    It requires the extra ``judge``: ``pip install 'guerdon[judge]'``. A service is connected on
    its first call, and again after its connection was lost. Any number of threads, tasks and event
    loops may share a client. Copies of a client are the client itself; one that was pickled opens
    its own connections.

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
        services: Services by name. A service is an `McpService` or an `OpenAIService`, or a
            dictionary with the fields of one, as under ``mcp_services`` in a reward's file; the
            address of an MCP server; a command (a list of words) that is an MCP server on its
            stdin and stdout; or a server object of the SDK. Alternatively one service without a
            name: then a call names the tool.
        timeout_s: The timeout of an attempt in seconds, above 0, for a service that is not
            configured on its own.
        concurrency: The most calls at once of such a service.
        retries: How often a call of such a service is retried if it is unavailable or too slow.

    Raises:
        RewardConfigError: The configuration of a service, or a setting, is invalid; it lists every
            problem.
        InvalidArgumentError: A service is of an unsupported type.
    """

    def __init__(
        self,
        services: Any,
        *,
        timeout_s: float = 60.0,
        concurrency: int = 64,
        retries: int = 0,
    ) -> None:
        settings = _settings(timeout_s=timeout_s, concurrency=concurrency, retries=retries)
        named = isinstance(services, Mapping) and services.get("type") not in TYPES
        if named:
            made = [_service(_name(name), each, settings) for name, each in services.items()]
        else:
            made = [_service(None, services, settings)]
        self._begin(made, is_named=named)

    def _begin(self, services: list[Any], *, is_named: bool) -> None:
        self._services: dict[str, Service] = {service.name: service for service in services}
        self._is_named = is_named
        self._fingerprints = {service.name: _fingerprint(service.config) for service in services}
        # At exit, each closes by itself.
        weakref.finalize(self, _abandon, services).atexit = False

    @property
    def services(self) -> tuple[str, ...]:
        """The names of the services."""
        return tuple(self._services)

    def public(self) -> dict[str, dict[str, Any]]:
        """Return what is public of the services: no secrets, no private prompts."""
        return {name: service.config.public() for name, service in self._services.items()}

    def fingerprint(self, service: str) -> str:
        """Return a digest of everything that the answers of a service are known to depend on.

        Of a server object of the SDK, only the name is known.

        Example:
            >>> from guerdon import MCPClient
            >>> first = MCPClient({"judge": "http://localhost:8000/mcp"})
            >>> second = MCPClient({"judge": "http://localhost:8001/mcp"})
            >>> first.fingerprint("judge") == second.fingerprint("judge")
            False

        Raises:
            InvalidArgumentError: There is no such service.
        """
        return self._fingerprints[self._service(service).name]

    def chat_model(self, service: str) -> ChatModel | None:
        """Return the model of a service that is one and has no prompt of its own.

        An `LLMJudge` asks it with its own prompt.

        Example:
            >>> from guerdon import MCPClient
            >>> from guerdon.services import OpenAIService
            >>> model = OpenAIService(endpoint="http://localhost:8000", model="qwen3-8b")
            >>> MCPClient({"judge": model}).chat_model("judge").name
            'qwen3-8b at http://localhost:8000/v1'

        Raises:
            InvalidArgumentError: There is no such service.
            MissingExtraError: The package ``openai`` is not installed.
        """
        return self._service(service).chat_model()

    def call_tool(self, service: str, /, **arguments: Any) -> dict[str, Any] | str:
        """Call a service.

        Args:
            service: Its name; of a client without names, the name of the tool.
            **arguments: The arguments of the tool. Those of a model are the fields of its prompt,
                or ``prompt`` or ``messages`` if it has none.

        Returns:
            Structured content, or text that is a JSON object, as a dictionary; otherwise text. Of
            a tool annotated ``-> str`` always the text.

        Raises:
            InvalidArgumentError: There is no such service, or it rejects the arguments.
            ServiceUnavailableError: It can't be reached, or its connection was lost.
            ServiceTimeoutError: It took too long.
            ServiceError: It failed in another way; the message contains the tool's own.
            AsyncRubricError: It was called in async code on the background loop.
            MissingExtraError: A package of the extra is not installed.
        """
        return run(self._call(service, arguments))

    async def call_tool_async(self, service: str, /, **arguments: Any) -> dict[str, Any] | str:
        """Like `call_tool`, in async code, on any event loop."""
        return await on_background(self._call(service, arguments))

    def list_tools(self, service: str | None = None) -> list[ServiceTool]:
        """Return the tools of one service, or of all.

        Args:
            service: The service's name; None for all of them.

        Raises:
            ServiceError: A service can't be reached.
        """
        return run(self._tools(service))

    async def list_tools_async(self, service: str | None = None) -> list[ServiceTool]:
        """Like `list_tools`, in async code, on any event loop."""
        return await on_background(self._tools(service))

    def check(self, *, timeout_s: float = 10.0) -> None:
        """Check that every service can be reached and has the tool that will be called.

        Args:
            timeout_s: The timeout of each check in seconds, above 0.

        Raises:
            ServiceUnavailableError: Services can't be reached; the message lists them.
            RewardConfigError: The timeout is invalid.
        """
        run(self._check(timeout_s))

    async def check_async(self, *, timeout_s: float = 10.0) -> None:
        """Like `check`, in async code, on any event loop."""
        await on_background(self._check(timeout_s))

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        if self._is_named:
            return await self._service(name).call(None, arguments)
        (service,) = self._services.values()
        return await service.call(name, arguments)

    async def _tools(self, name: str | None) -> list[ServiceTool]:
        asked = [self._service(name)] if name is not None else self._services.values()
        listed = await _each(asked, lambda service: service.tools())
        return [tool for tools in listed for tool in tools]

    async def _check(self, timeout_s: float) -> None:
        timeout_s = _settings(timeout_s=timeout_s)["timeout_s"]
        problems: list[ServiceError] = []

        async def check(service: Service) -> None:
            try:
                await service.check(timeout_s, for_tool=self._is_named)
            except ServiceError as error:
                problems.append(error)

        await _each(self._services.values(), check)
        if len(problems) == 1:
            raise problems[0]
        if problems:
            message = f"{len(problems)} services are unavailable: " + "; ".join(map(str, problems))
            raised = ServiceUnavailableError(message, service=problems[0].service)
            for note in (note for each in problems for note in getattr(each, "__notes__", ())):
                raised.add_note(note)
            raise raised

    async def _close(self) -> None:
        await _each(self._services.values(), lambda service: service.close())

    def _service(self, name: str) -> Service:
        if name in self._services:
            return self._services[name]
        raise InvalidArgumentError(
            f"there is no service {shown(name)}; {did_you_mean(name, self._services)}"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"services": list(self._services.values()), "is_named": self._is_named}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._begin(state["services"], is_named=state["is_named"])

    def __repr__(self) -> str:
        return f"MCPClient({', '.join(self._services)})"


def _settings(**given: Any) -> dict[str, Any]:
    settings: CallSettings = parse_service((), given, adapter=CALL_SETTINGS)
    return settings.model_dump()


def _service(name: str | None, given: Any, settings: Mapping[str, Any]) -> Service:
    place = () if name is None else ("mcp_services", name)
    if isinstance(given, (Mapping, CallSettings)):
        config = parse_service(place, given)
    elif isinstance(given, (str, list, tuple)):
        key = "endpoint" if isinstance(given, str) else "command"
        config = parse_service(place, {"type": "mcp", key: given, **settings})
    else:
        _check_server(place, given)
        config = parse_service(place, {"server": given, **settings}, adapter=SDK_SERVICE)
    if isinstance(config, OpenAIService):
        from guerdon.services.model_service import ModelService

        return ModelService(name or config.model, config)
    require_mcp()
    from guerdon.services.mcp_service import ToolService

    public = config.public()
    return ToolService(
        name or str(public.get("endpoint") or public.get("command") or public.get("server")),
        config,
    )


def require_mcp() -> None:
    """Import the SDK of MCP.

    Raises:
        MissingExtraError: It isn't installed, or too old.
    """
    import_extra("mcp.server", "judge", "MCPClient")


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(
            f"the name of a service must be a non-empty string, got {shown(name)}"
        )
    return name


def _check_server(place: Place, given: Any) -> None:
    require_mcp()
    from mcp import StdioServerParameters
    from mcp.server import MCPServer, Server

    if not isinstance(given, (MCPServer, Server, StdioServerParameters)):
        raise InvalidArgumentError(
            f"{place_text(place) or 'the service'} must be an address, a command (a list of "
            "words), an McpService or OpenAIService, a dictionary with the fields of one, or a "
            f"server object of mcp, got {shown(given)}"
        )


def _fingerprint(config: McpService | OpenAIService | SdkService) -> str:
    if isinstance(config, SdkService):
        known = config.public()
    else:
        known = config.model_dump(mode="json", exclude=HOW_CALLED)
    return hashlib.blake2b(json.dumps(known, sort_keys=True).encode(), digest_size=16).hexdigest()


async def _each(
    services: Iterable[Service], work: Callable[[Service], Coroutine[Any, Any, T]]
) -> list[T]:
    """Run a coroutine for each service, wait for all of them, and raise the first error."""
    done = await asyncio.gather(*map(work, services), return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], done)


def _abandon(services: list[Service]) -> None:
    for service in services:
        service.abandon()
