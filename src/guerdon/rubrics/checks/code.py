"""Code that compiles."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from guerdon.rubrics.checks.fences import FencedBlock, fenced_blocks
from guerdon.rubrics.checks.inputs import AnswerCheck
from guerdon.types.reasoning import REASONING_TAGS

__all__ = ["PythonCompiles"]

_FILE_NAME = "<guerdon.PythonCompiles>"
_MODULE = r"<guerdon\.PythonCompiles>\Z"


class PythonCompiles(AnswerCheck):
    r"""The Python code compiles.

    It is compiled, never run, by the Python that guerdon runs on. Several blocks are compiled one
    by one, and each must compile.

    Args:
        field: The attribute or key of the action that contains the text.
        fenced: Whether the code is in the blocks fenced as `python`, or else in those fenced
            without a language; a block that is never closed runs to the end. Otherwise, and if
            there are no blocks, the whole text is the code.
        reasoning_tags: The tags around reasoning, which is left out, as for `split_reasoning`; the
            lines of an explanation are counted without it.

    Returns:
        1.0 if all of it compiles, otherwise 0.0. An empty text compiles.

    Raises:
        MissingInputError: At evaluation, the action has no text.

    Example:
        >>> PythonCompiles()("```python\ndef f(x) return x\n```", None)
        0.0
    """

    score_range = (0.0, 1.0)

    def __init__(
        self,
        *,
        field: str = "content",
        fenced: bool = True,
        reasoning_tags: Sequence[str] = REASONING_TAGS,
    ) -> None:
        super().__init__(reasoning_tags)
        self.field = field
        self.fenced = fenced

    def forward(self, action: Any, observation: Any) -> float:
        """Compile the code of the action."""
        text = self.answer_of(action)
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
    """Ignore the compiler's warnings about this file name.

    One filter is inserted once, as `warnings.catch_warnings` around each call would undo changes
    that other threads make to the filters meanwhile.
    """
    first = warnings.filters[0] if warnings.filters else None
    if first is None or getattr(first[3], "pattern", None) != _MODULE:
        warnings.filterwarnings("ignore", module=_MODULE)
