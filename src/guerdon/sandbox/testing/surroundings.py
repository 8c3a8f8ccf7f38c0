"""What the tests change around the program, and what it changes around them.

In one process both would have one working directory, one environment, one standard output. Here
each message carries what has changed: the tests' side sends patches, seeds, standard streams and
arguments; the program's side sends what it printed to a stream that the tests have replaced, and
its warnings.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable
from os import chdir, getcwd
from types import ModuleType
from typing import Any

from . import codec, containers, link

STREAMS = ("stdout", "stderr")
GIVEN = ("stdin", "argv")  # what the tests set in `sys`
#: Functions that set a seed: called by a test, they are called in the program's process, too.
SEEDS = (("random", "seed"), ("random", "setstate"), ("numpy.random", "seed"))
MISSING = object()
WATCHED = "_guerdon_watched"  # an attribute of functions that are followed already


class _Both(link.Link):
    """The working directory and the environment."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._cwd = getcwd()
        self.common.place(containers.ENVIRON, os.environ._data)  # type: ignore[attr-defined]

    def sending(self, message: dict[str, Any], encoder: codec.Encoder) -> None:
        """Add the working directory to a message if it has changed."""
        with contextlib.suppress(OSError):  # it has been removed
            if (cwd := getcwd()) != self._cwd:
                self._cwd = message["cwd"] = cwd

    def received(self, message: dict[str, Any], decoder: codec.Decoder) -> None:
        """Change the working directory as the other side did."""
        cwd = message.get("cwd")
        if type(cwd) is str:
            with contextlib.suppress(OSError, ValueError):
                chdir(cwd)
                self._cwd = getcwd()


class TestsSurroundings(_Both):
    """What the tests' side sends.

    Attributes:
        source: The text of the present test.
    """

    source = ""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._original = {name: getattr(sys, name) for name in (*STREAMS, *GIVEN)}
        self._given = {name: self._original[name] for name in GIVEN}
        self._captured: list[str] = []
        self._pending: list[tuple[str, str, str, Any]] = []
        self.on_builtin: Callable[[str, Any], None] = lambda name, value: None

    def watch(self, source: str) -> None:
        """Follow the patches and seeds of a test.

        Args:
            source: The test. What it doesn't name isn't imported.
        """
        self.source = source
        if "mock" in source:
            self._watch_patches()
        for module, name in SEEDS:
            if module.partition(".")[0] in source:
                with contextlib.suppress(ImportError):
                    self._watch_seed(__import__(module, fromlist=[name]), name)

    def _watch_patches(self) -> None:
        from unittest import mock

        patch: Any = mock._patch
        enter, leave = patch.__enter__, patch.__exit__
        if hasattr(enter, WATCHED):
            return

        def entered(self_: Any) -> Any:
            value = enter(self_)
            self._patched(self_.target, self_.attribute)
            return value

        def left(self_: Any, *error: Any) -> Any:
            target = getattr(self_, "target", None)
            try:
                return leave(self_, *error)
            finally:
                self._patched(target, self_.attribute, restored=True)

        entered.__dict__[WATCHED] = True
        patch.__enter__, patch.__exit__ = entered, left

    def _patched(self, target: Any, attribute: str, restored: bool = False) -> None:
        is_module = isinstance(target, ModuleType)
        module = target.__name__ if is_module else target.__module__
        path = "" if is_module else getattr(target, "__qualname__", "")
        is_known = module.partition(".")[0] in (*sys.stdlib_module_names, "numpy")
        if not is_known or not (path or is_module):
            return
        value = getattr(target, attribute, MISSING)
        if module == "builtins" and not path:
            self.on_builtin(attribute, value)
        self._pending.append((module, path, attribute, MISSING if restored else value))

    def _watch_seed(self, module: ModuleType, name: str) -> None:
        seed = getattr(module, name)
        if hasattr(seed, WATCHED):
            return

        def seeded(*args: Any, **kwargs: Any) -> Any:
            result = seed(*args, **kwargs)
            self._pending.append((module.__name__, name, "()", (args, kwargs)))
            return result

        seeded.__dict__[WATCHED] = True
        setattr(module, name, seeded)

    def sending(self, message: dict[str, Any], encoder: codec.Encoder) -> None:
        """Add the patches, seeds, streams and arguments that have changed."""
        super().sending(message, encoder)
        for name in GIVEN:
            value = getattr(sys, name, None)
            if value is not self._given[name]:
                self._given[name] = value
                is_restored = value is self._original[name]
                self._pending.append(("sys", "", name, MISSING if is_restored else value))
        captured = [name for name in STREAMS if getattr(sys, name) is not self._original[name]]
        if captured != self._captured:
            self._captured = message["captured"] = captured
        pending, self._pending = self._pending, []
        if pending:
            message["changes"] = [
                [module, path, name, *([] if value is MISSING else [encoder.value(value)])]
                for module, path, name, value in pending
            ]

    def received(self, message: dict[str, Any], decoder: codec.Decoder) -> None:
        """Print what the program has printed, and give its warnings."""
        super().received(message, decoder)
        for name, text in message.get("printed", ()):
            if name in self._captured and type(text) is str:
                getattr(sys, name).write(text)
        for warning, filename, line in message.get("warned", ()):
            found = decoder.value(warning)
            if isinstance(found, Warning):
                warnings.warn_explicit(found, None, str(filename), int(line))


class ProgramSurroundings(_Both):
    """What the program's side sends."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._streams = {name: getattr(sys, name) for name in STREAMS}
        self._replaced: dict[tuple[str, str, str], Any] = {}
        self._printed: list[list[str]] = []
        self._warned: list[Any] = []

    def watch_warnings(self) -> None:
        """Send all warnings: the tests' filters choose among them."""
        warnings.resetwarnings()
        warnings.simplefilter("always")

        def show(message: Any, category: Any, filename: str, line: int, *rest: Any) -> None:
            self._warned.append([message, filename, line])

        warnings.showwarning = show  # type: ignore[assignment]

    def sending(self, message: dict[str, Any], encoder: codec.Encoder) -> None:
        """Add what the program has printed and its warnings."""
        super().sending(message, encoder)
        if self._printed:
            message["printed"], self._printed = self._printed, []
        if self._warned:
            warned, self._warned = self._warned, []
            message["warned"] = [[encoder.value(each), *where] for each, *where in warned]

    def received(self, message: dict[str, Any], decoder: codec.Decoder) -> None:
        """Change what the tests have changed."""
        super().received(message, decoder)
        captured = message.get("captured")
        if captured is not None:
            for name, stream in self._streams.items():
                setattr(sys, name, Printed(self._printer(name)) if name in captured else stream)
        for module, path, name, *value in message.get("changes", ()):
            self._change(module, path, name, [decoder.value(each) for each in value])

    def named(self, module: str, name: str) -> Any:
        """Return an object of a module here, by its name there."""
        found: Any = importlib.import_module(module)
        for part in filter(None, name.split(".")):
            found = getattr(found, part)
        return found

    def _printer(self, name: str) -> Callable[[str], None]:
        return lambda text: self._printed.append([name, text])

    def _change(self, module: str, path: str, name: str, value: list[Any]) -> None:
        target = self.named(module, path)
        if name == "()":
            args, kwargs = value[0]
            target(*args, **kwargs)
            return
        key = (module, path, name)
        if value:
            self._replaced.setdefault(key, vars(target).get(name, MISSING))
            setattr(target, name, value[0])
        elif (original := self._replaced.pop(key, MISSING)) is not MISSING:
            setattr(target, name, original)
        else:
            with contextlib.suppress(AttributeError):
                delattr(target, name)


class Printed(io.TextIOBase):
    """A standard stream that the tests have replaced.

    Args:
        write: Receives each text.
    """

    encoding = "utf-8"

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Send a text with the next message."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._write(text)
        return len(text)
