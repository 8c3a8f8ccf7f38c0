"""Recognising functions of other libraries by the names of their parameters."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import FunctionType
from typing import Any

from guerdon._loading import LIBRARIES
from guerdon.rubrics.state import unwrapped

# Parameters that only functions of a library have; the first that a function has decide.
_MARKS: list[tuple[str, set[str]]] = [
    ("openrlhf", {"queries"}), ("verl", {"solution_str"}), ("verl", {"solution_strs"}),
    ("verifiers", {"completion"}), ("verifiers", {"completions", "answers"}),
    ("verifiers", {"states"}), ("verifiers", {"infos"}), ("verifiers", {"trace"}),
    ("trl", {"completions"}), ("trl", {"completion_ids"}), ("trl", {"trainer_state"}),
    ("trl", {"log_extra"}), ("trl", {"log_metric"}), ("verl", {"data_source"}),
    ("verl", {"data_sources"}), ("verl", {"extra_info"}), ("verl", {"extra_infos"}),
    ("openrlhf", {"prompts", "labels"}), ("trl", {"prompts"}),
]  # fmt: skip
_MARKED = {name for _, names in _MARKS for name in names}

# Parameters of functions of verifiers that others have, too.
_OF_VERIFIERS = {"answer", "info", "parser", "prompt", "state", "task"}

# Words in the names of parameters of functions of texts.
_WORDS_OF_ANSWERS = (
    "answer|correct|expectation|expected|gold|ground|gt|label|ref|reference|solution|target|true"
    "|truth|want"
)
_ANSWERS = re.compile(rf"(?i)(?:^|_)(?:{_WORDS_OF_ANSWERS})s?(?:_|$)")
_TEXTS = re.compile(
    rf"(?i)(?:^|_)(?:{_WORDS_OF_ANSWERS}|code|context|doc|equation|example|generated|generation|got"
    r"|hat|input|item|metadata|model|number|out|output|pred|predict|prediction|prompt|query|question"
    r"|response|result|run|sample|sql|str|test|text|user|var|y)s?(?:_|$)"
)

# Parameters of our own functions.
_MESSAGES = {"messages", "rollouts_messages"}
_OBSERVATION = {"obs", "observation"}

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def signature_of(function: Any) -> inspect.Signature | None:
    """Return the signature of a function; None if it has none, as a callable from C.

    That of a decorator's ``(*args, **kwargs)`` is that of the function that it calls.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    if [parameter.kind for parameter in signature.parameters.values()] == [*VARIADIC]:
        for cell in getattr(unwrapped(function), "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # the cell is empty
                if isinstance(cell.cell_contents, FunctionType):
                    return signature_of(cell.cell_contents)
    return signature


def parameters_in(function: Any) -> Mapping[str, Parameter]:
    """Return the parameters of a function by name; none if it has no signature."""
    signature = signature_of(function)
    return {} if signature is None else signature.parameters


def refusal(
    function: Callable[..., Any],
    parameters: Mapping[str, Parameter] | None = None,
    *,
    takes_step: bool,
    spec: str = "",
) -> str | None:
    """Return why a function isn't called as it is, with its conversion; None if it may be ours.

    Example:
        >>> def correct(completions, answer, **kwargs): ...
        >>> refusal(correct, takes_step=True).partition(":")[0]
        'correct(completions, answer, kwargs) looks like a reward function of TRL'

    Args:
        function: The function.
        parameters: Its parameters, if they are known.
        takes_step: Whether it would be called with an action and an observation; otherwise its
            first argument would be messages.
        spec: The spec that names it, if there is one.
    """
    parameters = parameters_in(function) if parameters is None else parameters
    named = [parameter for parameter in parameters.values() if parameter.kind not in VARIADIC]
    first, second = [*(parameter.name for parameter in named), "", ""][:2]
    if _MESSAGES.intersection(parameters):
        return None
    if takes_step:
        is_answer = _ANSWERS.search(second)
        if second in _OBSERVATION or (first == "action" and not is_answer):
            return None
        # A further parameter with a default is never filled.
        named = [*named[:2], *(other for other in named[2:] if other.default is Parameter.empty)]
        is_of_texts = bool(is_answer or all(map(_TEXTS.search, (first, second))))
    else:
        is_of_texts = _TEXTS.search(first) is not None
        if not is_of_texts and first not in _OF_VERIFIERS | _MARKED:
            return None
    name = getattr(unwrapped(function), "__name__", None) or type(function).__name__
    called = f"{name}({', '.join(parameters)})"
    library = _library_of([parameter.name for parameter in named])
    if library is not None:
        return (
            f"{called} looks like a reward function of {LIBRARIES[library]}: convert it with "
            f"guerdon.integrations.from_{library}({name}), or score with "
            f"--reward {library}:{spec or f'file.py:{name}'}"
        )
    if is_of_texts:
        return (
            f"{called} takes texts, not {'a step' if takes_step else 'messages'}: call it in a "
            "function of messages, `@reward_function def reward(messages, ground_truth)`, with "
            "messages[-1].text"
        )
    return None


def _library_of(names: list[str]) -> str | None:
    for library, marks in _MARKS:
        if marks.issubset(names):
            return library
    return "verifiers" if names and _OF_VERIFIERS.issuperset(names[:2]) else None
