"""Language models behind endpoints that speak OpenAI's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.services.models.chat import *
    from guerdon.services.models.retrying import *
    from guerdon.services.models.usage import *

__getattr__, __dir__ = lazy_names(__name__, "chat", "usage", "retrying")
