"""Every fenced code block of the documentation runs and prints the documented output.

A document has one folder and one namespace, and its blocks run in order:

- ``python`` is executed; ``python file=reward.py`` is written to that file and compiled;
- ``bash`` runs with ``bash -euo pipefail``, the environment's commands on its path;
- ``bash no-run`` is not run; its commands are among `NO_RUN_COMMANDS`;
- ``jsonl file=…``, ``yaml file=…``, ``json file=…`` and ``toml file=…`` are written to that file;
  the last two are parsed;
- ``text`` is the output of the block before it; ``…`` matches anything within a line.
"""

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import traceback
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from examples.tau_airline.data import data_path
from guerdon.errors import InvalidArgumentError

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Documents about packages that only `make worlds`, `make trainers` and `make cluster` install, and
# run these documents.
PACKAGES = {
    "run-on-a-cluster.md": "ray",
    "train-with-skyrl.md": "skyrl_gym",
    "train-with-trl.md": "trl",
    "world-atari.md": "ale_py",
    "world-textarena.md": "textarena",
}
TO_RUN = [document for document in DOCUMENTS if find_spec(PACKAGES.get(document.name, "guerdon"))]
NO_RUN_COMMANDS = {
    "UV_PYTHON=3.13 UV_PROJECT_ENVIRONMENT=.venv-3.13 make test",
    "guerdon score trajectories.json --format tau-bench --reward "
    "examples/tau_airline/reward.yaml --credit gigpo --gamma 0.95 --out scored.jsonl",
    'python -c "import json; from tau_bench.envs.airline.tasks_test import TASKS; '
    'print(json.dumps([task.model_dump() for task in TASKS]))" > tasks.json',
    "guerdon serve examples/tau_airline --services user.yaml",
    "python -m examples.tau_airline.play --endpoint http://localhost:8000/v1 --model my-model "
    "--user-model my-user-model --trials 4 --out rollouts.jsonl",
    "guerdon score rollouts.jsonl --reward examples/tau_airline/reward.yaml --credit gigpo",
    "guerdon diff examples/tau_airline/reward.yaml my-reward.yaml rollouts.jsonl",
    "guerdon score rollouts.jsonl --reward reward.py:reward --out scored.jsonl --engine ray",
    "guerdon score games.jsonl --reward examples/chess/reward.yaml --by player",
    "guerdon arena",
    "guerdon view scored.jsonl --rollouts rollouts.jsonl",
    "guerdon serve number_env --processes 4",
    "guerdon serve examples/chess --reward examples/chess/reward.yaml",
    "guerdon judge-server --endpoint http://localhost:8000 --model my-model --template style.txt",
    "docker build -t number_env number_env",
    "docker run --init -p 127.0.0.1:8000:8000 -e GUERDON_TOKEN number_env",
    "guerdon serve examples/atari",
    "guerdon serve examples/textarena",
    "guerdon serve number_env",
    "guerdon serve number_env --web",
    "guerdon serve number_env --reward reward.yaml",
    "gym env start --config resources_servers/word_problems/configs/word_problems.yaml "
    "--model-type openai_model --model-url http://localhost:8000/v1 --model-api-key none "
    "--model my-model",
    "gym eval run --no-serve --agent word_problems_agent --input tasks.jsonl "
    "--output rollouts.jsonl",
    "make arena-lm",
    "make check",
    "make demo",
    "make docs-test",
    "make interop",
    "make live",
    "make page",
    ".trainers/tiny-model/bin/python -m examples.tiny_model --port 8000",
    "python -m examples.tau_airline.play --endpoint http://localhost:8000/v1 --model tiny "
    "--trials 2 --tasks 0-3 --max-turns 5 --temperature 1 --out rollouts.jsonl",
    "make sandbox",
    "make test",
    "make trainers ONLY=trl",
    ".trainers/trl/bin/python -m trainers.trl_digits --seeds 0 1 2",
    ".trainers/trl/bin/python -m trainers.trl_lock --seeds 0 1 2",
    "pip install . trl",
    "pip install '.[chess]'",
    "pip install '.[atari]'",
    "pip install '.[gymnasium]'",
    "pip install '.[judge]'",
    "pip install '.[pettingzoo]'",
    "pip install '.[ray]'",
    "pip install '.[textarena]'",
    "pip install 'verifiers>=0.4' .",
    "pip install nemo-gym .",
    "pip install openrlhf .",
    "pip install skyrl skyrl-gym .",
    "pip install 'verl[verl-core]' .",
    "pip install .",
    "python -m examples.chess.pgn examples/chess/games.pgn > games.jsonl",
    "python -m examples.chess.play",
    "python -m examples.atari.play",
    "python -m examples.shaping --plots docs",
    "python -m examples.tau_airline.replay",
    "python -m examples.textarena.play",
    "ray job submit --working-dir . -- guerdon score rollouts.jsonl --reward reward.py:reward "
    "--out /shared/scored.jsonl --engine ray",
}
SECONDS = 60


class BlockError(Exception):
    """A block failed or has other output than documented."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, attributes, text and position."""

    language: str
    attributes: dict[str, str]
    text: str
    document: Path
    line: int  # of its first line, from 1

    def fail(self, message: str, line: int | None = None) -> BlockError:
        return BlockError(f"{self.document}:{line or self.line}: {message}")


def blocks_of(text: str, document: Path) -> list[Block]:
    blocks = []
    for token in MarkdownIt().parse(text):
        if token.type == "code_block":
            raise BlockError(f"{document}:{token.map[0] + 1}: an indented block must be fenced")
        if token.type != "fence":
            continue
        language, *words = token.info.split() or [""]
        attributes = dict(word.partition("=")[::2] for word in words)
        blocks.append(Block(language, attributes, token.content, document, token.map[0] + 2))
    return blocks


@dataclass
class DocumentRunner:
    """Runs the blocks of one document, in order, in a folder."""

    folder: Path
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str | None = None  # the output of the last block

    def run(self, block: Block) -> None:
        accepted = {
            "python": {"file"}, "bash": {"no-run"}, "text": set(),
            "jsonl": {"file"}, "json": {"file"}, "yaml": {"file"}, "toml": {"file"},
        }  # fmt: skip
        if block.language not in accepted:
            raise block.fail(
                f"the language must be one of {sorted(accepted)}, got {block.language!r}"
            )
        if not block.attributes.keys() <= accepted[block.language]:
            raise block.fail(f"{block.language} doesn't accept {sorted(block.attributes)}")
        if block.language in {"jsonl", "json", "yaml", "toml"} and "file" not in block.attributes:
            raise block.fail(f"a {block.language} block needs file=NAME")
        if block.language == "text":
            self._compare(block)
        elif "file" in block.attributes:
            self._write(block)
        elif block.language == "python":
            self._python(block)
        elif "no-run" in block.attributes:
            self._check_no_run(block)
        else:
            self._bash(block)

    def _compare(self, block: Block) -> None:
        if self.printed is None:
            raise block.fail("there is no output to compare this text with")
        printed, self.printed = self.printed, None
        if not matches(block.text, printed):
            raise block.fail(f"expected\n{block.text}\nbut it printed\n{printed}")

    def _write(self, block: Block) -> None:
        path = (self.folder / block.attributes["file"]).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise block.fail(f"{block.attributes['file']} is outside of the document's folder")
        if block.language == "python":
            self._compiled(block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        importlib.invalidate_caches()
        self.printed = None

    def _compiled(self, block: Block):
        # Empty lines before the code, so that tracebacks have the line numbers of the document.
        source = "\n" * (block.line - 1) + block.text
        try:
            return compile(source, str(block.document), "exec", dont_inherit=True)
        except SyntaxError as error:
            raise block.fail(f"SyntaxError: {error.msg}", error.lineno) from None

    def _python(self, block: Block) -> None:
        code = self._compiled(block)
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(code, self.namespace)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(block.document)]
            text = "".join(traceback.format_exception(error))
            raise block.fail(text, lines[0] if lines else None) from error
        self.printed = out.getvalue()

    def _check_no_run(self, block: Block) -> None:
        for number, command in enumerate(block.text.splitlines()):
            if command.partition("  #")[0].strip() not in NO_RUN_COMMANDS | {""}:
                raise block.fail(
                    f"{command!r} must run: it isn't in NO_RUN_COMMANDS", block.line + number
                )
        self.printed = None

    def _bash(self, block: Block) -> None:
        nowhere = "http://127.0.0.1:9"
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder), "LANG": "C.UTF-8", "COLUMNS": "100", "NO_COLOR": "1",
            "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere,
        }  # fmt: skip
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        if ended.returncode:
            raise block.fail(f"exit code {ended.returncode}\n{ended.stdout}")
        self.printed = ended.stdout


def matches(expected: str, printed: str) -> bool:
    """Return whether an output matches, except for white space at the ends of lines."""
    lines, found = (
        [line.rstrip() for line in text.strip("\n").splitlines()] for text in (expected, printed)
    )
    while found and not found[-1]:
        found.pop()
    while found and not found[0]:
        del found[0]
    return len(lines) == len(found) and all(
        re.fullmatch(".*".join(map(re.escape, line.split("…"))), other)
        for line, other in zip(lines, found, strict=True)
    )


@pytest.fixture
def clean_imports():
    """Let a document import its own files, and unload them afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    sys.path.insert(0, os.getcwd())
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(os.getcwd()):
            del sys.modules[name]


@pytest.mark.docs
@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize("document", TO_RUN, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_run(document, tmp_path):
    if document.name == "tau-bench.md":
        try:
            data_path()
        except InvalidArgumentError as error:
            pytest.skip(f"the data is missing: {error}")
    runner = DocumentRunner(tmp_path)
    for block in blocks_of(document.read_text(encoding="utf-8"), document.relative_to(ROOT)):
        runner.run(block)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_exist(document):
    for target in links_of(document.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("#"):
            path = document.parent / target.partition("#")[0]
            assert path.exists(), f"{document.name} links to {target}"


def links_of(text: str) -> list[str]:
    links = []
    blocks = MarkdownIt().parse(text)
    for token in [*blocks, *(child for block in blocks for child in block.children or ())]:
        if token.type in {"link_open", "image"}:
            links.append(str(token.attrs.get("href") or token.attrs.get("src")))
        elif token.type in {"html_block", "html_inline"}:
            links += re.findall(r'(?:src|srcset|href)="([^"]+)"', token.content)
    return links


# The harness -----------------------------------------------------------------------------------


def run(text: str, folder: Path) -> DocumentRunner:
    runner = DocumentRunner(folder)
    for block in blocks_of(text, Path("page.md")):
        runner.run(block)
    return runner


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("1\n2\n", "1\n2\n"),
        ("1\n", "\n1   \n\n"),
        ("in … s, … a second", "in 0.12 s, 8,000 a second"),
        ("(a) [b] … c", "(a) [b] é c"),
        ("", ""),
    ],
)
def test_matches_accepts_equal_outputs(expected, printed):
    assert matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("1", "2"),
        ("1", "1\n2"),
        ("1\n2", "1"),
        ("a…b", "a\nb"),
        ("a.c", "abc"),
        ("", "x"),
        ("x", ""),
    ],
)
def test_matches_rejects_different_outputs(expected, printed):
    assert not matches(expected, printed)


def test_document_runner_shares_a_namespace_and_a_folder(tmp_path):
    page = (
        "```python file=answer.py\nanswer = 42\n```\n"
        '```jsonl file=rows.jsonl\n{"a": 1}\n```\n'
        "```python\nx = 1\n```\n"
        "```python\nfrom pathlib import Path; print(x, Path('rows.jsonl').read_text())\n```\n"
        '```text\n1 {"a": 1}\n```\n'
        "```bash\npython -c 'import answer; print(answer.answer)'; echo $COLUMNS >&2\n```\n"
        "It prints\n\n```text\n42\n…00\n```\n"
        "- in a list\n\n  ```python\n  assert x == 1\n  ```\n"
    )
    run(page, tmp_path)
    assert (tmp_path / "rows.jsonl").read_text() == '{"a": 1}\n'


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("# A page\n\n```python\nx = 1\n1 / 0\n```\n", "page.md:5: .*ZeroDivisionError"),
        ("```python\nx = \n```\n", "page.md:2: SyntaxError"),
        ("```python file=a.py\n\ndef\n```\n", "page.md:3: SyntaxError"),
        ("```python file=../a.py\n\n```\n", "outside"),
        ("```bash\nfalse\necho no\n```\n", "page.md:2: exit code 1"),
        ("```bash\necho $NOT_SET\n```\n", "exit code 1"),
        ("```bash\nfalse | true\n```\n", "exit code 1"),
        ("```bash no-run\nmake demo\nrm -r everything\n```\n", "page.md:3: 'rm -r everything'"),
        ("```python no-run\nx\n```\n", "python doesn't accept"),
        (
            "```python\nprint(1)\n```\n```text\n2\n```\n",
            "page.md:5: expected\n2\n\nbut it printed\n1",
        ),
        ("```text\n2\n```\n", "no output"),
        ("```python\nprint(1)\n```\n```text\n1\n```\n```text\n1\n```\n", "page.md:8: .*no output"),
        ("```jsonl\n{}\n```\n", "file=NAME"),
        ("```rust\nfn main() {}\n```\n", "got 'rust'"),
        ("```\nx\n```\n", "got ''"),
        ("A page\n\n    indented()\n", "page.md:3: an indented block"),
    ],
)
def test_document_runner_reports_failures_with_their_line(page, message, tmp_path):
    with pytest.raises(BlockError, match=f"(?s){message}"):
        run(page, tmp_path)


def test_document_runner_skips_no_run_commands(tmp_path):
    runner = run("```bash no-run\nmake demo  # scores a sample\n\nmake test\n```\n", tmp_path)
    assert runner.printed is None
