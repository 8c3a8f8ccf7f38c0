"""Services: tools and models behind names, over MCP; judges stand on them."""

from __future__ import annotations

from guerdon._lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
