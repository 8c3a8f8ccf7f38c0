"""The page as a single document: its modules and its styles inline, allowed by their hashes."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from guerdon.errors import GuerdonError

_IMPORT = re.compile(r'^import \{ [\w$]+(?:, [\w$]+)* \} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let) )", re.MULTILINE)
_NAME = re.compile(r"^(?:async function\*?|function\*?|class|const|let) +([\w$]+)", re.MULTILINE)
_LINK = '<link rel="stylesheet" href="style.css">'
_SCRIPT = '<script type="module" src="main.js"></script>'
_CHARSET = '<meta charset="utf-8">'


def bundled_modules(page: Path, main: str = "main.js") -> str:
    """The modules that a module imports, and itself, as one module.

    Each is after those that it imports. They must import names from each other with
    ``import { a, b } from "./x.js";``, without renaming them, and define different names at the top
    level.

    Args:
        page: The folder of the modules.
        main: The module to begin with.

    Raises:
        GuerdonError: A module imports or exports in another way, or two define the same name.
    """
    sources: dict[str, str] = {}
    owners: dict[str, str] = {}
    pending: set[str] = set()

    def add(name: str) -> None:
        if name in sources or name in pending:  # modules may import each other
            return
        pending.add(name)
        source = (page / name).read_text(encoding="utf-8")
        for imported in _IMPORT.findall(source):
            add(imported)
        source = _EXPORT.sub("", _IMPORT.sub("", source))
        if found := re.search(r"^(?:import|export)\b.*", source, re.MULTILINE):
            raise GuerdonError(f"{name} can't be in a report: {found[0]!r:.100}")
        for own in _NAME.findall(source):
            if owners.setdefault(own, name) != name:
                raise GuerdonError(f"{name} and {owners[own]} both define {own}")
        sources[name] = source

    add(main)
    return "\n".join(f"// {name}\n{source}" for name, source in sources.items())


def bundled_page(page: Path, data: str) -> str:
    """The page as one document that requests nothing.

    Args:
        page: The folder of the page.
        data: What the page reads from its element ``data``: base64.

    Raises:
        GuerdonError: The page is not as it must be.
    """
    document = (page / "index.html").read_text(encoding="utf-8")
    style, script = (page / "style.css").read_text(encoding="utf-8"), bundled_modules(page)
    if "</style" in style.lower() or re.search("</script|<!--", script, re.IGNORECASE):
        raise GuerdonError(
            "the styles and modules of the page must not have </style, </script, <!--"
        )
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    replacements = {
        _CHARSET: f'{_CHARSET}\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        _LINK: f"<style>{style}</style>",
        # Modules run after the whole document is there, with the data at its end.
        _SCRIPT: f'<script type="module">{script}</script>',
        "</body>": f'<script type="application/octet-stream" id="data">{data}</script>\n</body>',
    }
    for old, new in replacements.items():
        if document.count(old) != 1:
            raise GuerdonError(f"the page must have {old} once")
        document = document.replace(old, new)
    return document


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
