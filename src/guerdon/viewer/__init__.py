"""The page of ``guerdon view``: an index of files of rewards, its server, and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.viewer.app import *
    from guerdon.viewer.files import *
    from guerdon.viewer.index import *
    from guerdon.viewer.report import *

__getattr__, __dir__ = lazy_names(__name__, "index", "files", "report", "app")
