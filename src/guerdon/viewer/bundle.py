"""The page as a single document: its modules and its styles inline, allowed by their hashes."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from guerdon._pages import bundled_modules
from guerdon.errors import GuerdonError

_LINK = '<link rel="stylesheet" href="style.css">'
_SCRIPT = '<script type="module" src="main.js"></script>'
_CHARSET = '<meta charset="utf-8">'


def bundled_page(page: Path, data: str) -> str:
    """The page as one document that requests nothing.

    Args:
        page: The folder of the page.
        data: What the page reads from its element ``data``: base64.

    Raises:
        GuerdonError: The document lacks a part that is replaced, or a script or style contains the
            end of its element.
    """
    document = (page / "index.html").read_text(encoding="utf-8")
    style, script = (page / "style.css").read_text(encoding="utf-8"), bundled_modules(page)
    if "</style" in style.lower() or re.search("</script|<!--", script, re.IGNORECASE):
        raise GuerdonError(
            "the styles and modules of the page must not contain </style, </script or <!--"
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
            raise GuerdonError(f"the page must contain {old} once")
        document = document.replace(old, new)
    return document


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
