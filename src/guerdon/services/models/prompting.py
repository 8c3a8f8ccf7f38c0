"""What a model is asked where a service's arguments fill a prompt, and what the answer gives."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias

from guerdon.errors import InvalidArgumentError, ServiceError
from guerdon.rubrics.judge.asking import ModelJudge, question_of
from guerdon.rubrics.judge.template import Template
from guerdon.rubrics.judge.verdict import parse_verdict, verdict_schema
from guerdon.services.models.chat import ChatModel

__all__ = ["Prompting", "Returns"]

Returns: TypeAlias = Literal["text", "json", "verdict"]

# What any judge may be told, whether its prompt has a place for it or not.
JUDGED = ("action", "observation")
FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)


class Prompting:
    """Makes messages of arguments, and a result of the answer.

    Args:
        template: The prompt; without one, the arguments are ``prompt`` or ``messages``.
        returns: What the answer gives: its ``text``, the ``json`` in it, or a ``verdict``. What
            fills the prompt of a verdict in is fenced, so that it can't pass for one.
    """

    def __init__(self, template: Template | None, returns: Returns) -> None:
        self.template, self.returns = template, returns
        self._names = dict.fromkeys(
            field.partition(".")[0] for field in (template.fields if template else ())
        )

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        if self.template is None:
            properties: dict[str, Any] = {
                "prompt": {"type": "string"},
                "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
            }
        else:
            return _schema_of(self.template.fields)
        return {
            "type": "object",
            "properties": properties,
            "required": [],
            "additionalProperties": False,
        }

    async def ask(self, chat: ChatModel, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Ask a model.

        Raises:
            InvalidArgumentError: The arguments aren't those that are taken.
            MissingInputError: A place of the prompt has no value.
            ServiceError: The model failed, or its answer is none.
        """
        if self.template is None:
            messages = _given(arguments)
        elif self.returns == "verdict":
            self._check(arguments)
            question = question_of(self.template.fill_fenced(arguments))
            return (await ModelJudge(chat).ask(question)).to_dict()
        else:
            self._check(arguments)
            messages = [{"role": "user", "content": self.template.fill(arguments)}]
        reply = await chat.complete(
            messages, schema=verdict_schema() if self.returns == "verdict" else None
        )
        if self.returns == "text":
            return reply.text
        if self.returns == "json":
            return _parsed(reply.text, chat.name)
        return parse_verdict(reply.text, service=chat.name).to_dict()

    def _check(self, arguments: Mapping[str, Any]) -> None:
        unknown = sorted(arguments.keys() - self._names.keys() - set(JUDGED))
        if unknown:
            raise InvalidArgumentError(
                f"the prompt has no place for {', '.join(unknown)}; it takes "
                f"{', '.join(self._names) or 'nothing'}"
            )


def _schema_of(fields: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of what fills a prompt's places in.

    What any judge may be told isn't listed where the prompt has no place for it, so that no model
    makes it up; nor is it ruled out.
    """
    schema = _part_schema("", [field.split(".") for field in fields])
    closed = set(JUDGED) <= schema["properties"].keys()
    return schema | ({"additionalProperties": False} if closed else {})


def _part_schema(path: str, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The schema of what stands at a path, of which the prompt names parts."""
    told = {"description": f"What the prompt has for {{{path}}}."} if path else {}
    names = dict.fromkeys(each[0] for each in parts if each)
    if not names:
        return {"type": "string", **told}
    if any(name.isdecimal() for name in names):
        return {"type": "array", **told}
    properties = {
        name: _part_schema(
            f"{path}.{name}".removeprefix("."), [each[1:] for each in parts if each[:1] == [name]]
        )
        for name in names
    }
    return {"type": "object", **told, "properties": properties, "required": list(names)}


def _given(arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    prompt, messages = arguments.get("prompt"), arguments.get("messages")
    if len(arguments) == 1 and isinstance(prompt, str) and prompt:
        return [{"role": "user", "content": prompt}]
    if (
        len(arguments) == 1
        and isinstance(messages, (list, tuple))
        and messages
        and all(isinstance(message, Mapping) and "role" in message for message in messages)
    ):
        return messages
    raise InvalidArgumentError(
        "a service without a prompt of its own takes prompt=, a text, or messages=, a list of "
        f'{{"role", "content"}}; it was given {", ".join(sorted(arguments)) or "nothing"}'
    )


def _parsed(text: str, service: str) -> dict[str, Any]:
    """The JSON that an answer is, within a fence or without."""
    fenced = FENCED.match(text)
    try:
        said = json.loads(fenced[1] if fenced else text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            f"{service} gave what is no JSON: {error}: {text[:200]!r}", service=service
        ) from error
    return said if isinstance(said, dict) else {"result": said}


def _no_number(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no number in JSON")
