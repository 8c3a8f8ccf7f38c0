"""Files of rows, and a small page in place of the real one."""

import json

import pytest

from guerdon.viewer import FileIndex, ViewedFile


@pytest.fixture
def write(tmp_path):
    """Writes values as lines of JSON; gives the path."""

    def write(name, values, end="\n"):
        path = tmp_path / name
        path.write_text("\n".join(map(json.dumps, values)) + end)
        return path

    return write


@pytest.fixture
def opened(tmp_path):
    """Opens indexes, and closes them."""
    indexes = []

    def opened(path):
        index = FileIndex(path, cache=tmp_path / "cache")
        indexes.append(index)
        return index

    yield opened
    for index in indexes:
        index.close()


@pytest.fixture
def viewed(opened):
    """Opens a file of the page, with its rollouts."""

    def viewed(path, rollouts=None):
        return ViewedFile(opened(path), None if rollouts is None else opened(rollouts))

    return viewed


def row(id, score, **more):
    """A result row; a score of None is a failure."""
    return {
        "id": id,
        "group": "g",
        "score": score,
        "is_score_valid": score is not None,
        "components": {} if score is None else {"right": score},
        "step_rewards": None if score is None else [score],
        "error": "JudgeError: no answer" if score is None else None,
        "fingerprint": "f",
    } | more


def rollout(id, text="Hello", **more):
    """A rollout with an answer."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]
    return {"id": id, "group": "g", "messages": messages} | more


PAGE = {
    "index.html": """<!doctype html>
<html><head>
<meta charset="utf-8">
<link rel="stylesheet" href="style.css">
<script type="module" src="main.js"></script>
</head><body>
</body></html>
""",
    "style.css": "body { color: black; }\n",
    "names.js": 'export const name = "guerdon";\n',
    "main.js": 'import { name } from "./names.js";\nexport function title() { return name; }\n',
}


@pytest.fixture
def page(tmp_path):
    """The folder of a small page."""
    folder = tmp_path / "page"
    folder.mkdir()
    for name, text in PAGE.items():
        (folder / name).write_text(text)
    return folder
