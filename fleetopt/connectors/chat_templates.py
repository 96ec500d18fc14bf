"""Chat messages → the pieces of text that an engine's chat template makes of them.

Special tokens cut a prompt into segments that are tokenized apart, so a prompt has as many tokens
as it has special tokens, and as its segments have. Where an engine may write a message in more than
one way (which engine it is, which options it has), all of them are returned and the longest
counts: the sum is what the engine sees, or a little more, never less.

What the templates write is known from the models' published templates. Messages with tools, images
or other parts that are not text are refused: their templates vary with the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fleetopt.connectors.message_text import text_parts
from fleetopt.connectors.model_names import Template
from fleetopt.errors import InputError

_ROLES: Final = ("system", "developer", "user", "assistant")
_NEWLINE: Final = "\n"
_PART_JOINTS: Final = ("\n", " ", "")
"""What engines put between the text parts of one message."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One way to write a message: its special tokens, and the texts between them."""

    special_tokens: int
    segments: tuple[str, ...]


Written = tuple[Piece, ...]
"""All ways in which an engine may write one message."""


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    texts: tuple[str, ...]
    """Its content, once for every way to join its parts."""
    reasoning: str | None
    name: str | None


def written(template: Template, messages: Sequence[Mapping[str, Any]]) -> list[Written]:
    """Return the prompt of these messages piece by piece, with the start of the answer.

    Raises
    ------
    InputError
        For anything but text, with the message's place.
    """
    return _TEMPLATES[template]([_read(message, at) for at, message in enumerate(messages)])


def _read(message: Mapping[str, Any], at: int) -> _Message:
    role = message.get("role")
    if role not in _ROLES:
        raise InputError(
            f"messages[{at}]: role {role!r} can't be counted by a bundled template, only "
            f"{', '.join(_ROLES)}: count with the engine's own /tokenize"
        )
    for field in ("tool_calls", "function_call", "audio"):
        if message.get(field):
            raise InputError(
                f"messages[{at}].{field}: engines write it differently: count with the engine's "
                "own /tokenize"
            )
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return _Message(
        role=str(role),
        texts=_texts(message.get("content"), at),
        reasoning=reasoning if isinstance(reasoning, str) else None,
        name=message["name"] if isinstance(message.get("name"), str) else None,
    )


def _texts(content: object, at: int) -> tuple[str, ...]:
    parts = text_parts(content, at)
    if len(parts) < 2:
        return ("".join(parts),)
    return tuple(joint.join(parts) for joint in _PART_JOINTS)


def _chatml_message(role: str, text: str) -> Piece:
    return Piece(2, (f"{role}\n{text}", "\n"))


_CHATML_ANSWER: Final[Written] = (Piece(1, ("assistant\n",)),)


def _chatml(messages: list[_Message]) -> list[Written]:
    return [
        *(tuple(_chatml_message(each.role, text) for text in each.texts) for each in messages),
        _CHATML_ANSWER,
    ]


_QWEN2_DEFAULTS: Final = (
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    "You are a helpful assistant.",
    "Please reason step by step, and put your final answer within \\boxed{}.",
)
"""What the templates of Qwen2, Qwen2.5 and Qwen2.5-Math say where no system message does."""


def _qwen2(messages: list[_Message]) -> list[Written]:
    pieces = _chatml(messages)
    if not messages or messages[0].role != "system":
        pieces.insert(0, tuple(_chatml_message("system", text) for text in _QWEN2_DEFAULTS))
    return pieces


_QWEN3_ANSWERS: Final[Written] = (
    *_CHATML_ANSWER,
    Piece(2, ("assistant\n", "\n")),  # <think>, of the models that only think
    Piece(3, ("assistant\n", "\n\n", "\n\n")),  # <think></think>, where thinking is off
)


def _qwen3(messages: list[_Message]) -> list[Written]:
    asked = max((at for at, each in enumerate(messages) if _asks(each)), default=len(messages))
    return [
        *(
            _qwen3_answer(each, may_think=at > asked)
            if each.role == "assistant"
            else tuple(_chatml_message(each.role, text) for text in each.texts)
            for at, each in enumerate(messages)
        ),
        _QWEN3_ANSWERS,
    ]


def _asks(message: _Message) -> bool:
    """Whether it is a user's message, and not a tool's answer in its place."""
    return message.role == "user" and not all(
        text.startswith("<tool_response>") and text.endswith("</tool_response>")
        for text in message.texts
    )


def _qwen3_answer(message: _Message, *, may_think: bool) -> Written:
    """An earlier answer: without its thoughts, unless it follows the last question."""
    pieces = []
    for text in message.texts:
        before, end, after = text.rpartition("</think>")
        answer = after.lstrip("\n") if end else text
        pieces.append(_chatml_message("assistant", answer))
        if may_think:
            thoughts = message.reasoning or before.rpartition("<think>")[2]
            segments = ("assistant\n", f"\n{thoughts.strip(_NEWLINE)}\n")
            pieces.append(Piece(4, (*segments, f"\n\n{answer.lstrip(_NEWLINE)}", "\n")))
    return tuple(pieces)


def _llama3_message(role: str, text: str) -> Piece:
    return Piece(3, (role, f"\n\n{text}"))


_LLAMA3_START: Final[Written] = (Piece(1, ()),)
_LLAMA3_ANSWER: Final[Written] = (Piece(2, ("assistant", "\n\n")),)
_LLAMA3_DATES: Final = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""Of any other day too: day, month and year have as many tokens on every date until 2099."""


def _llama3(messages: list[_Message]) -> list[Written]:
    return [
        _LLAMA3_START,
        *(
            tuple(_llama3_message(each.role, text.strip()) for text in each.texts)
            for each in messages
        ),
        _LLAMA3_ANSWER,
    ]


def _llama3_dated(messages: list[_Message]) -> list[Written]:
    has_system = bool(messages) and messages[0].role == "system"
    system = messages[0].texts if has_system else ("",)
    start, *rest, answer = _llama3(messages)
    return [
        start,
        tuple(_llama3_message("system", _LLAMA3_DATES + text.strip()) for text in system),
        *(rest[1:] if has_system else rest),
        answer,
    ]


_HARMONY_SYSTEM: Final = (
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
    "Current date: 2025-06-28\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, "
    "final. Channel must be included for every message."
)


def _harmony(messages: list[_Message]) -> list[Written]:
    return [
        (Piece(3, ("system", _HARMONY_SYSTEM)),),
        *(_harmony_message(each) for each in messages),
        (Piece(1, ("assistant",)),),
    ]


def _harmony_message(message: _Message) -> Written:
    if message.role == "user":
        return tuple(Piece(3, ("user", text)) for text in message.texts)
    if message.role == "assistant":
        return tuple(
            piece
            for text in message.texts
            for piece in (
                Piece(4, ("assistant", "final", text)),
                *(
                    [
                        Piece(
                            8,
                            (
                                "assistant",
                                "analysis",
                                message.reasoning,
                                "assistant",
                                "final",
                                text,
                            ),
                        )
                    ]
                    if message.reasoning
                    else []
                ),
            )
        )
    return tuple(
        piece
        for text in message.texts
        for piece in (
            Piece(3, ("system", text)),
            Piece(3, ("developer", text)),
            Piece(3, ("developer", f"# Instructions\n\n{text}")),
            Piece(3, ("developer", f"# Instructions\n\n{text}\n\n")),
        )
    )


_OPENAI_PER_MESSAGE, _OPENAI_PER_NAME, _OPENAI_ANSWER = 4, 1, 3
"""The most that OpenAI has stated for any of its chat models: it does not publish the templates."""


def _openai(messages: list[_Message]) -> list[Written]:
    return [
        *(
            tuple(
                Piece(_OPENAI_PER_MESSAGE, (each.role, text))
                if each.name is None
                else Piece(_OPENAI_PER_MESSAGE + _OPENAI_PER_NAME, (each.role, each.name, text))
                for text in each.texts
            )
            for each in messages
        ),
        (Piece(_OPENAI_ANSWER, ()),),
    ]


_TEMPLATES: Final[Mapping[Template, Callable[[list[_Message]], list[Written]]]] = {
    Template.OPENAI: _openai,
    Template.HARMONY: _harmony,
    Template.LLAMA3: _llama3,
    Template.LLAMA3_DATED: _llama3_dated,
    Template.QWEN2: _qwen2,
    Template.QWEN3: _qwen3,
    Template.CHATML: _chatml,
}
