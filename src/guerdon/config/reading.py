"""Reading YAML and JSON strictly: nothing is guessed, and every value keeps its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from guerdon.config.documents import Document, Place, Problem
from guerdon.config.plain_scalars import plain_value
from guerdon.errors import RewardConfigError

__all__ = ["parse_document", "read_document"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 50

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\],:"]+')


def read_document(path: str | Path) -> Document:
    r"""Read a file: JSON where its name ends in ``.json``, YAML otherwise.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "reward.yaml")
        ...     _ = file.write_text("name: no\n")
        ...     read_document(file).data
        {'name': 'no'}

    Args:
        path: Of a file of at most 1 MiB, in UTF-8.

    Raises:
        RewardConfigError: It can't be read, or see `parse_document`.
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
        raise RewardConfigError(f"{path}:{line}: it isn't UTF-8: {error.reason}") from None
    return parse_document(text, file=str(path), is_json=path.suffix.lower() == ".json")


def parse_document(text: str, *, file: str | None = None, is_json: bool = False) -> Document:
    """Read text.

    YAML is read by the core schema of YAML 1.2: ``1e-3`` is a number; ``no``, ``on``, ``1:30`` and
    ``2026-11-22`` are text. A key that comes twice is refused, as are ``012``, NaN, infinity and
    tags; and anchors, aliases and merge keys, so that what is written is all that there is.

    Example:
        >>> parse_document("{rate: 1e-3, name: no}").data
        {'rate': 0.001, 'name': 'no'}

    Args:
        text: YAML or JSON of at most 1 MiB.
        file: What the file is called, for messages.
        is_json: Whether it is JSON.

    Returns:
        The document. What can be read but not meant is told in its ``problems``.

    Raises:
        RewardConfigError: It is no YAML or JSON, empty, or too long or too deep.
    """
    text = text.removeprefix("\ufeff")
    builder = _Builder()
    try:
        if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
            _stop(_TOO_LONG)
        for event in _json_events(text) if is_json else _yaml_events(text):
            builder.take(event)
        if builder.root is None and not builder.problems:
            _stop("it is empty; a reward's file is a mapping with per_turn or episode_end")
    except _Stop as stop:
        raise Document(None, file).error([*builder.problems, stop.problem]) from None
    lines, texts = builder.lines, builder.texts
    return Document(builder.root, file, lines, texts, tuple(builder.problems))


_TOO_LONG = f"it is longer than {MAX_BYTES:,} bytes, the most that is read"


class _Stop(Exception):
    """What nothing can be read behind."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def _stop(said: str, line: int | None = None) -> NoReturn:
    raise _Stop(Problem((), said, line))


class _Event(NamedTuple):
    """A piece of a document: where a mapping or list begins or ends, or a scalar."""

    kind: str  # "{", "[", "end" or "scalar"
    line: int
    value: Any = None
    text: str = ""
    wrong: str | None = None


class _Frame:
    """A mapping or list that has begun and not ended; a mapping's key whose value comes next."""

    __slots__ = ("container", "key", "place")

    def __init__(self, container: dict[str, Any] | list[Any], place: Place) -> None:
        self.container, self.place = container, place
        self.key: str | None = None


class _Builder:
    """Makes values of events, and takes note of their lines."""

    def __init__(self) -> None:
        self.root: Any = None
        self.lines: dict[Place, int] = {}
        self.texts: dict[Place, str] = {}
        self.problems: list[Problem] = []
        self._open: list[_Frame] = []

    def take(self, event: _Event) -> None:
        """Take the next event."""
        if event.kind == "end":
            self._open.pop()
            return
        frame = self._open[-1] if self._open else None
        if frame is not None and isinstance(frame.container, dict) and frame.key is None:
            self._take_key(frame, event)
            return
        value: Any = {"{": dict, "[": list}.get(event.kind, lambda: event.value)()
        place = self._put(frame, value, event.line)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.texts[place] = event.text
        self._check(place, event)
        if event.kind != "scalar":
            if len(self._open) == MAX_DEPTH:
                _stop(f"it is nested more than {MAX_DEPTH} deep", event.line)
            self._open.append(_Frame(value, place))

    def _take_key(self, frame: _Frame, event: _Event) -> None:
        if event.kind != "scalar":
            _stop("a key is text; here a mapping or list begins", event.line)
        key, place = event.value, frame.place
        if not isinstance(key, str):
            said = f"the key {event.text or 'null'} is no text; write it in quotes"
            self.problems.append(Problem(place, said, event.line))
            key = event.text
        frame.key = key
        if key in frame.container:
            first = self.lines[(*place, key)]
            said = f"it comes twice, first on line {first}; leave one out"
            self.problems.append(Problem((*place, key), said, event.line))
        self.lines[(*place, key)] = event.line
        self._check((*place, key), event)

    def _put(self, frame: _Frame | None, value: Any, line: int) -> Place:
        if frame is None:
            self.root = value
            self.lines[()] = line
            return ()
        if isinstance(frame.container, dict):
            assert frame.key is not None
            place = (*frame.place, frame.key)
            frame.container[frame.key] = value
            frame.key = None
        else:
            place = (*frame.place, len(frame.container))
            frame.container.append(value)
            self.lines[place] = line
        return place

    def _check(self, place: Place, event: _Event) -> None:
        wrong = event.wrong
        if wrong is None and isinstance(event.value, str) and _SURROGATE.search(event.value):
            wrong = "it holds half a character (a lone surrogate)"
        if wrong is not None:
            self.problems.append(Problem(place, wrong, event.line))


_SURROGATE = re.compile("[\ud800-\udfff]")


# YAML ----------------------------------------------------------------------------------------


def _yaml_events(text: str) -> Iterator[_Event]:
    documents = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1 if event.start_mark is not None else 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    _stop("a second document begins here (---); a file holds one", line)
            elif isinstance(event, yaml.CollectionEndEvent):
                yield _Event("end", line)
            elif isinstance(event, yaml.NodeEvent):
                yield _yaml_event(event, line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _stop(_yaml_error(error), mark.line + 1 if mark is not None else None)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{int(error.character):04X}"
        _stop(f"YAML takes no character {character} as it is; write it as an escape", line)
    except (ValueError, OverflowError) as error:  # such as "\UFFFFFFFF"
        _stop(f"it is no YAML: {error}")


def _yaml_event(event: yaml.NodeEvent, line: int) -> _Event:
    if isinstance(event, yaml.AliasEvent):
        said = f"aliases (*{event.anchor:.40}) aren't read; write the value out"
        return _Event("scalar", line, None, wrong=said)
    wrong: str | None = None
    if event.anchor is not None:
        wrong = f"anchors (&{event.anchor:.40}) aren't read; write values out where they are used"
    tag: str | None = getattr(event, "tag", None)
    if tag is not None:
        wrong = f"tags ({tag:.80}) aren't read; text goes in quotes"
    if not isinstance(event, yaml.ScalarEvent):
        return _Event("{" if isinstance(event, yaml.MappingStartEvent) else "[", line, wrong=wrong)
    text: str = event.value
    value: Any = text
    if event.style is None and tag is None:
        value, ambiguous = plain_value(text)
        wrong = wrong or ambiguous
        if text == "<<":
            wrong = "merge keys (<<) aren't read; write the keys out"
    return _Event("scalar", line, value, text, wrong)


def _yaml_error(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "it can't be read"
    if "'\\t'" in problem:
        return "a tab stands where YAML takes spaces; indent with spaces"
    if problem.startswith("mapping values are not allowed"):
        return (
            "it is no YAML: there is a second ': ' here; put text that holds one in quotes, "
            "and begin each key on a line of its own, as far in as its neighbours"
        )
    said = f"it is no YAML: {problem}" + (f" {error.context}" if error.context else "")
    return said + next((f"; {hint}" for begins, hint in _HINTS if problem.startswith(begins)), "")


# What is mostly meant, by how PyYAML's message begins.
_HINTS = (
    ("found unknown escape", "a backslash is doubled in double quotes, and itself in single ones"),
    ("found character", "text that begins with it goes in quotes"),
    ("expected ',' or", "text that holds one of , : [ ] { } goes in quotes"),
)


# JSON ----------------------------------------------------------------------------------------


def _json_events(text: str) -> Iterator[_Event]:
    if not text.strip():
        return
    _check_json(text)
    line, end = 1, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", end, token.start())
        end = token.start()
        word = token.group()
        if word in ("{", "["):
            yield _Event(word, line)
        elif word in ("}", "]"):
            yield _Event("end", line)
        elif word.startswith('"') or word in ("true", "false", "null"):
            yield _Event("scalar", line, json.loads(word), word)
        elif word in _NO_JSON:
            yield _Event("scalar", line, word, word, f"{word} is no finite number, and no JSON")
        else:
            value, wrong = plain_value(word)  # also 1e999, which json.loads takes for infinity
            yield _Event("scalar", line, value, word, wrong)


# What Python's reader takes beside JSON.
_NO_JSON = ("NaN", "Infinity", "-Infinity")


def _check_json(text: str) -> None:
    try:
        json.loads(text, parse_int=len)
    except json.JSONDecodeError as error:
        said = f"it is no JSON: {error.msg} (column {error.colno})"
        _stop(said, error.lineno)
    except RecursionError:
        _stop(f"it is nested more than {MAX_DEPTH} deep")
