"""Strict YAML and JSON: nothing is guessed, and every value keeps its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from guerdon._logging import shortened
from guerdon._problems import Place, Problem
from guerdon._validation import is_finite
from guerdon.errors import RewardConfigError

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_DIGITS = 1000

MAX_PROBLEMS = 50  # of an error

_TOO_LONG = f"it is larger than {MAX_BYTES:,} bytes"
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


@dataclass(frozen=True, slots=True)
class Document:
    r"""The content of a file, with the line of each value.

    Example:
        >>> document = parse_document("a: 1\nper_turn: []\n", file="reward.yaml")
        >>> document.data
        {'a': 1, 'per_turn': []}
        >>> document.message(Problem(("per_turn",), "is empty"))
        'reward.yaml:2: per_turn: is empty'

    Attributes:
        data: The content, as JSON can represent it.
        file: The name of the file; None if there is none.
        lines: The line of each value, from 1: that of its key, if it has one.
        problems: What could be read, but is not accepted.
    """

    data: Any
    file: str | None = None
    lines: Mapping[Place, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def folder(self) -> Path | None:
        """The folder of the file."""
        return Path(self.file).parent if self.file else None

    def line_of(self, place: Place) -> int | None:
        """Return the line of a value, or of what contains it; None if lines aren't known."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)

    def message(self, problem: Problem) -> str:
        """Return ``file:line: place: message``."""
        line = problem.line or self.line_of(problem.place)
        where = [self.file] if self.file else ["line"] if line is not None else []
        if line is not None:
            where = [f"{self.file}:{line}" if self.file else f"line {line}"]
        return ": ".join([*where, shortened(str(problem))])

    def error(self, problems: Iterable[Problem]) -> RewardConfigError:
        """Return the error that lists problems in the order of the file, at most 50 of them."""
        ordered = sorted(problems, key=lambda each: each.line or self.line_of(each.place) or 0)
        lines = list(dict.fromkeys(map(self.message, ordered)))
        if len(lines) > MAX_PROBLEMS:
            lines[MAX_PROBLEMS:] = [f"and {len(lines) - MAX_PROBLEMS:,} more problems"]
        return RewardConfigError("\n".join(lines), problems=lines)


def read_document(path: str | Path) -> Document:
    r"""Read a file: JSON if its name ends in ``.json``, YAML otherwise.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "reward.yaml")
        ...     _ = file.write_text("name: no\n")
        ...     read_document(file).data
        {'name': 'no'}

    Args:
        path: A file of at most 1 MiB, in UTF-8.

    Raises:
        RewardConfigError: The file can't be read; see also `parse_document`.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RewardConfigError(f"{path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise RewardConfigError(f"{path}: {_TOO_LONG}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise RewardConfigError(f"{path}:{line}: it is not UTF-8: {error.reason}") from None
    return parse_document(text, file=str(path), is_json=path.suffix.lower() == ".json")


def parse_document(text: str, *, file: str | None = None, is_json: bool = False) -> Document:
    """Read text.

    YAML is read by the core schema of YAML 1.2: ``1e-3`` is a number; ``no``, ``on``, ``1:30`` and
    ``2026-11-22`` are strings. Duplicate keys, ``012``, NaN, infinity, tags, anchors, aliases and
    merge keys are rejected. A number at ``schema_version`` stays as it is written: ``"1.10"``.

    Example:
        >>> parse_document("{rate: 1e-3, name: no}").data
        {'rate': 0.001, 'name': 'no'}

    Args:
        text: YAML or JSON of at most 1 MiB.
        file: The name of the file, for messages.
        is_json: Whether it is JSON.

    Returns:
        The document. What could be read, but is not accepted, is in its ``problems``.

    Raises:
        RewardConfigError: The text is not YAML or JSON, or it is empty, too long or too deep.
    """
    text = text.removeprefix("\ufeff")
    reader = _Reader()
    try:
        if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
            _stop(_TOO_LONG)
        node = _json_node(text) if is_json else _yaml_node(text)
        data = reader.value(node, ()) if node is not None else None
        if data is None and not reader.problems:
            _stop("it is empty; it must be a mapping")
    except _StopError as stop:
        raise Document(None, file).error([*reader.problems, stop.problem]) from None
    return Document(data, file, reader.lines, tuple(reader.problems))


class _StopError(Exception):
    """A problem after which nothing can be read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def _stop(message: str, line: int | None = None) -> NoReturn:
    raise _StopError(Problem((), message, line))


# From nodes to values ------------------------------------------------------------------------

_WORDS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTES = "; for text, put it in quotes"


def plain_value(text: str) -> tuple[Any, str | None]:
    """Return the value of an unquoted word of YAML, and why it is not accepted.

    Example:
        >>> plain_value("1e-3"), plain_value("no")
        ((0.001, None), ('no', None))
        >>> plain_value("012")[1]
        "'012' is ambiguous, as some readers take it as octal; write 12, or put it in quotes"
    """
    if text in _WORDS:
        return _WORDS[text], None
    if _LEADING_ZERO.fullmatch(text):
        plain = re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", text)
        return text, (
            f"{text!r:.60} is ambiguous, as some readers take it as octal; write {plain:.60}, or "
            "put it in quotes"
        )
    if _NOT_FINITE.fullmatch(text):
        return text, f"{text} is not a finite number{_QUOTES}"
    is_int = _INT.fullmatch(text)
    if not is_int and not _FLOAT.fullmatch(text):
        return text, None
    if len(text) > MAX_DIGITS:
        return text, f"a number has at most {MAX_DIGITS} digits{_QUOTES}"
    value = int(text, 0 if text[:2] in ("0x", "0o") else 10) if is_int else float(text)
    if is_finite(value):
        return value, None
    return text, f"{text:.60} is too large for a number{_QUOTES}"


class _Reader:
    """Converts nodes to values; collects their lines and what is not accepted."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []

    def value(self, node: Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        self._refuse(place, node, getattr(node, "problem", None))
        if isinstance(node, ScalarNode):
            return self._scalar(node, place)
        if isinstance(node, SequenceNode):
            return [self.value(each, (*place, number)) for number, each in enumerate(node.value)]
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, place)
            here = (*place, key)
            if key in values:
                first = self.lines[here]
                self._refuse(here, key_node, f"duplicate key, first on line {first}; remove one")
            self.lines[here] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, here)
        return values

    def _key(self, node: Node, place: Place) -> str:
        if not isinstance(node, ScalarNode):
            _stop("a key must be a string, got a mapping or a list", node.start_mark.line + 1)
        if node.style is None and node.value == "<<":
            self._refuse(
                (*place, "<<"), node, "merge keys (<<) are not supported; write the keys out"
            )
            return "<<"
        key = self._scalar(node, place)
        if not isinstance(key, str):
            message = f"the key {node.value or 'null'} is not a string; write it in quotes"
            self._refuse(place, node, message)
        return str(node.value)

    def _scalar(self, node: ScalarNode, place: Place) -> Any:
        value, problem = plain_value(node.value) if node.style is None else (node.value, None)
        if isinstance(value, str) and _SURROGATE.search(value):
            problem = "it contains half a character (a lone surrogate)"
        self._refuse(place, node, problem)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return node.value if is_number and place == ("schema_version",) else value

    def _refuse(self, place: Place, node: Node, message: str | None) -> None:
        if message is not None:
            self.problems.append(Problem(place, message, node.start_mark.line + 1))


# YAML ----------------------------------------------------------------------------------------


class _StrictLoader(yaml.SafeLoader):
    """Composes nodes without aliases, anchors and tags, each of which it notes as a problem."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line, tag = event.start_mark.line + 1, getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            self.get_event()  # type: ignore[no-untyped-call]
            mark: Any = event.start_mark
            node: Any = ScalarNode("", "null", mark, mark)
            node.problem = f"aliases (*{event.anchor:.40}) are not supported; write the value out"
            return node
        problem = None
        if event.anchor is not None:
            problem = f"anchors (&{event.anchor:.40}) are not supported; write the value out"
        if tag is not None:
            problem = f"tags ({tag:.80}) are not supported; put text in quotes"
        event.anchor = event.tag = None
        self.depth += 1
        if self.depth > MAX_DEPTH + isinstance(event, yaml.ScalarEvent):
            _stop(_TOO_DEEP, line)
        node = super().compose_node(parent, index)
        self.depth -= 1
        node.problem = problem
        if tag is not None and isinstance(node, ScalarNode):
            node.style = node.style or "'"  # a tagged word is read as text
        return node


def _yaml_node(text: str) -> Any:
    try:
        return _StrictLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _stop(_yaml_message(error), mark.line + 1 if mark is not None else None)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        _stop(f"YAML can't contain U+{int(error.character):04X}; write it as an escape", line)
    except (ValueError, OverflowError) as error:  # such as "\UFFFFFFFF"
        _stop(f"it is not YAML: {error}")


def _yaml_message(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "it can't be read"
    if problem.startswith("but found another document"):
        return "a second document begins here (---); a file must contain one"
    if "'\\t'" in problem:
        return "indentation must consist of spaces, got a tab"
    context = f" {error.context}" if error.context else ""
    return f"it is not YAML: {problem}{context}; text with special characters goes in quotes"


# JSON ----------------------------------------------------------------------------------------

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\],:"]+')

# Constants that Python's parser accepts and JSON doesn't have.
_NOT_JSON = ("NaN", "Infinity", "-Infinity")


def _json_node(text: str) -> Any:
    if not text.strip():
        return None
    try:
        json.loads(text, parse_int=len)
        return _next_node(_tokens(text), 0)
    except json.JSONDecodeError as error:
        _stop(f"it is not JSON: {error.msg} (column {error.colno})", error.lineno)
    except RecursionError:
        _stop(_TOO_DEEP)


def _tokens(text: str) -> Iterator[tuple[str, yaml.Mark]]:
    line, end = 0, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", end, token.start())
        end = token.start()
        yield token.group(), yaml.Mark("", end, line, 0, None, 0)


def _next_node(tokens: Iterator[tuple[str, yaml.Mark]], depth: int) -> Any:
    """The next value of tokens whose order is known to be right; None at a closing bracket."""
    word, mark = next(tokens)
    if word in ("}", "]"):
        return None
    if word in ("{", "["):
        if depth == MAX_DEPTH:
            _stop(_TOO_DEEP, mark.line + 1)
        inner = list(iter(lambda: _next_node(tokens, depth + 1), None))
        if word == "[":
            return SequenceNode("", inner, mark, mark)
        return MappingNode("", list(zip(inner[::2], inner[1::2], strict=True)), mark, mark)
    if word.startswith('"'):
        return ScalarNode("", json.loads(word), mark, mark, style='"')
    node: Any = ScalarNode("", word, mark, mark)
    node.problem = f"{word} is not a finite number, and not JSON" if word in _NOT_JSON else None
    return node


# Writing -------------------------------------------------------------------------------------

# Line breaks that only double quotes keep.
_BREAKS = re.compile("[\r\x85\u2028\u2029]")


class _Dumper(yaml.SafeDumper):
    """Writes values out where they are used, and quotes what some reader doesn't take as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML itself quotes what YAML 1.1 doesn't read as text.
    is_plain = plain_value(text) == (text, None) and not _BREAKS.search(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _write_text)


def to_yaml(data: Any) -> str:
    r"""Return data that JSON can represent as YAML that strict and lax readers read alike.

    Example:
        >>> to_yaml({"rate": "1e-3", "name": "no"})
        'rate: "1e-3"\nname: \'no\'\n'
    """
    return yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
