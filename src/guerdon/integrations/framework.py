"""Importing the framework that an adapter is for."""

from __future__ import annotations

import importlib
from typing import Any

from guerdon.errors import MissingExtraError


def import_framework(module: str, install: str) -> Any:
    """Import a module of a framework.

    Example:
        >>> from guerdon.integrations.framework import import_framework
        >>> import_framework("json", "").dumps({})
        '{}'

    Args:
        module: Its name.
        install: The command that installs it.

    Raises:
        MissingExtraError: It can't be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module} can't be imported ({error}): {install}") from error
