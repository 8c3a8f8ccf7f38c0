"""Running a program as a script, in the process that is a call's own."""

from __future__ import annotations

import atexit
import contextlib
import linecache
import marshal
import os
import sys
import threading
import traceback
from types import ModuleType

from guerdon.sandbox.server.streams import open_streams

__all__ = ["read_script", "run_script"]

NAME = "<program>"
OURS = ("guerdon", "landlockpy")

_hidden: list[ModuleType] = []


def read_script(job: int, folder: str) -> str:
    """Read a job, and lay out its files.

    Args:
        job: The descriptor that it is read from: its source and its files.
        folder: The call's own folder, where it runs.

    Returns:
        The program's source.
    """
    with open(job, "rb") as file:
        source, files = marshal.loads(file.read())
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    _prepare(folder)
    return str(source).removeprefix("\ufeff")  # which marks a file's encoding


def run_script(source: str) -> int:
    """Run a program as Python would, and tell its exit code."""
    streams = sys.stdout, sys.stderr
    code = _run(source)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does at its end
        atexit._run_exitfuncs()
    except BaseException as error:
        _tell(error)
    # The program may have put something else in their place, or have taken them away.
    for stream in (*streams, getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            code = code or 120  # as Python has it where its output can't be written
    return code


def _prepare(folder: str) -> None:
    """Make the interpreter look as if it had just been started here."""
    os.environ.update(HOME=folder, TMPDIR=folder)
    os.environ.pop("LD_LIBRARY_PATH", None)  # the interpreter's own
    sys.path[:] = [folder, *(each for each in sys.path if each)]
    sys.argv = [NAME]
    open_streams()  # the keeper's own were opened for its own descriptors
    # A program has no use for them; what runs here goes on, and taking it apart would cost time.
    _hidden.extend(sys.modules.pop(name) for name in _ours())


def _ours() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in OURS]


def _run(source: str) -> int:
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    try:
        exec(compile(source, NAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as leaving:
        return _code_of(leaving.code)
    except BaseException as error:
        _tell(error)
        return 1
    return 0


def _code_of(code: object) -> int:
    """The exit code that Python makes of what `sys.exit` was given."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _tell(error: BaseException) -> None:
    """Print a traceback, without the frames that aren't the program's."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
    except BaseException:  # its __str__ is the program's code
        with contextlib.suppress(OSError):  # it may have closed that, too
            os.write(2, f"{type(error).__name__}\n".encode("utf-8", "backslashreplace"))
