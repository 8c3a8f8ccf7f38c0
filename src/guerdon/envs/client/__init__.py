"""Clients of environments on servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.client.client import *
    from guerdon.envs.client.http import *
    from guerdon.envs.client.launchers import *
    from guerdon.envs.client.transport import *

__getattr__, __dir__ = lazy_names(__name__, "launchers", "client", "http", "transport")
