"""What every service is, whatever stands behind its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from guerdon.errors import ServiceError
from guerdon.services.service_tool import ServiceTool

if TYPE_CHECKING:
    from guerdon.services.models.chat import ChatModel

__all__ = ["Service", "told_as"]


class Service(Protocol):
    """Something behind a name; its methods run on the background loop."""

    name: str
    config: Any

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Call it.

        Args:
            tool: Which of its tools; None for its own.
            arguments: What the tool takes.
        """

    def chat_model(self) -> ChatModel | None:
        """The model that it is, where it has no prompt of its own."""

    async def tools(self) -> list[ServiceTool]:
        """What it offers."""

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """Raise a `ServiceError` where it isn't there.

        Args:
            timeout_s: Seconds that it may take, over 0.
            for_tool: Whether its own tool has to be there, too.
        """

    async def close(self) -> None:
        """Let go of its connections."""

    def abandon(self) -> None:
        """Have its connections close, from any thread and without waiting."""


@contextmanager
def told_as(service: str) -> Iterator[None]:
    """Have an error of a model tell the service that the model is.

    Example:
        >>> from guerdon.errors import ServiceError
        >>> with told_as("style"):
        ...     raise ServiceError("m answered 500", service="m")
        Traceback (most recent call last):
            ...
        guerdon.errors.ServiceError: service 'style': m answered 500

    Args:
        service: Its name.
    """
    try:
        yield
    except ServiceError as error:
        error.service = service
        error.args = (f"service {service!r}: {error}",)
        raise
