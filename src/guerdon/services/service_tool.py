"""`ServiceTool`: what a service offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ServiceTool"]


@dataclass(frozen=True, slots=True)
class ServiceTool:
    """What a service offers.

    Example:
        >>> from guerdon.services import ServiceTool
        >>> ServiceTool("judge", service="style_judge").description
        ''

    Args:
        name: The tool's name.
        service: The name of the service that it belongs to.
        description: What it does, in its author's words.
        input_schema: The JSON Schema of its arguments.
        output_schema: That of its structured content, where it says one.
    """

    name: str
    service: str
    description: str = ""
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
