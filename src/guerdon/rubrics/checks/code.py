"""Whether code is code."""

from __future__ import annotations

import warnings
from typing import Any

from guerdon.rubrics.checks.fences import FencedBlock, fenced_blocks
from guerdon.rubrics.checks.inputs import text_of
from guerdon.rubrics.rubric import Rubric

__all__ = ["PythonCompiles"]

_FILE_NAME = "<guerdon.PythonCompiles>"
_MODULE = r"<guerdon\.PythonCompiles>\Z"


class PythonCompiles(Rubric):
    r"""The Python code compiles.

    It is compiled, never run, by the Python that guerdon runs on. Several blocks are compiled one
    by one, and each has to compile.

    Args:
        field: The attribute or key of the action that holds the text.
        fenced: Whether the code is that of the blocks fenced as `python`, or else of those fenced
            without a language, where there are any; a block that is never closed runs to the end.
            Otherwise, and where there are none, the whole text is the code.

    Returns:
        1.0 where all of it compiles, otherwise 0.0. No code at all compiles.

    Raises:
        MissingInputError: At evaluation, if the action has no text.

    Example:
        >>> PythonCompiles()("```python\ndef f(x) return x\n```", None)
        0.0
    """

    score_range = (0.0, 1.0)

    def __init__(self, *, field: str = "content", fenced: bool = True) -> None:
        super().__init__()
        self.field = field
        self.fenced = fenced

    def forward(self, action: Any, observation: Any) -> float:
        """Compile the code of the action."""
        text = text_of(action, self.field)
        blocks = fenced_blocks(text, "python", "py", "python3") if self.fenced else []
        for block in blocks or (FencedBlock(text, 1),):
            problem = _problem_in(block)
            if problem is not None:
                self.explain("%s", problem)
                return 0.0
        return 1.0


def _problem_in(block: FencedBlock) -> str | None:
    """Why a block does not compile, or None."""
    _silence_warnings()
    try:
        compile(block.text, _FILE_NAME, "exec", dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None:
            return f"does not compile: {error.msg}"
        line = block.line + error.lineno - 1
        return f"line {line} does not compile: {error.msg}: {(error.text or '').strip()[:80]}"
    except (ValueError, OverflowError) as error:  # null bytes, lone surrogates
        return f"does not compile: {error}"
    except (RecursionError, MemoryError):
        return "does not compile: nested too deeply for Python's compiler"
    return None


def _silence_warnings() -> None:
    """Have the compiler's warnings about what it is given ignored.

    A filter for this one file name is put in front once, instead of `warnings.catch_warnings`
    around each call, which would take back what other threads do to the filters meanwhile.
    """
    first = warnings.filters[0] if warnings.filters else None
    if first is None or getattr(first[3], "pattern", None) != _MODULE:
        warnings.filterwarnings("ignore", module=_MODULE)
