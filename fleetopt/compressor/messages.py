"""Which texts of a chat may be cut, and the chat again with other texts in their place.

Number, order and roles of messages never change. System and developer messages, assistant turns,
tool calls, tool results (unless the caller opts in), images and other parts stay byte-identical; so
does everything up to the last cache marker, since a cache holds prefixes, and a short last user
message: it is the question.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fleetopt.compressor.options import CompressOptions

Message = Mapping[str, Any]

_CACHE_MARKERS: Final = ("cache_control", "cache_point", "cachePoint", "prompt_cache_breakpoint")
# Longer texts are not worth counting to see whether they are short.
_MAX_CHARACTERS_PER_TOKEN: Final = 16
_TEXT_PARTS: Final = ("text", "input_text")


class InvalidPromptError(ValueError):
    """The prompt isn't a text or a list of chat messages; the message says where."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text that may be cut, and where it stands."""

    message: int
    part: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts that may be cut, in order, and the question where the chat shows it."""

    texts: tuple[Text, ...]
    question: str | None


def texts_of(
    messages: Sequence[Message], options: CompressOptions, count: Callable[[str], int]
) -> Texts:
    """Return the texts that may be cut. Raises `InvalidPromptError`."""
    roles = [_role(message, at) for at, message in enumerate(messages)]
    last_user = max((at for at, role in enumerate(roles) if role == "user"), default=None)
    cuttable = {"user", "tool", "function"} if options.compress_tool_results else {"user"}
    texts: list[Text] = []
    question = None
    for at, message in enumerate(messages):
        found = _texts(message, at)
        marked = _last_marker(message)
        if marked is not None:
            texts = []
        if at == last_user:
            whole = "\n".join(text.text for text in found)
            short = len(whole) <= _MAX_CHARACTERS_PER_TOKEN * options.question_tokens
            if short and whole.strip() and count(whole) <= options.question_tokens:
                question = whole
                continue
        if roles[at] in cuttable:
            texts += [text for text in found if marked is None or (text.part or 0) > marked]
    return Texts(tuple(texts), question)


def with_texts(
    messages: Sequence[Message], texts: Mapping[tuple[int, int | None], str]
) -> list[dict[str, Any]]:
    """Return a copy of the chat with some texts replaced; nothing of the original is changed."""
    copy = [dict(message) for message in messages]
    for (at, part), text in texts.items():
        if part is None:
            copy[at]["content"] = text
        else:
            parts = list(copy[at]["content"])
            parts[part] = {**parts[part], "text": text}
            copy[at]["content"] = parts
    return copy


def _role(message: object, at: int) -> str:
    if not isinstance(message, Mapping):
        raise InvalidPromptError(
            f"messages[{at}] is {type(message).__name__}; a message is an object with a role"
        )
    role = message.get("role")
    if not isinstance(role, str):
        raise InvalidPromptError(f"messages[{at}].role is {role!r}; it is a text such as 'user'")
    return role


def _texts(message: Message, at: int) -> list[Text]:
    content = message.get("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(at, None, content)]
    if not isinstance(content, Sequence):
        raise InvalidPromptError(
            f"messages[{at}].content is {type(content).__name__}; it is a text or a list of parts"
        )
    found = []
    for number, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise InvalidPromptError(
                f"messages[{at}].content[{number}] is {type(part).__name__}; a part is an object"
            )
        if part.get("type") in _TEXT_PARTS:
            text = part.get("text")
            if not isinstance(text, str):
                raise InvalidPromptError(
                    f"messages[{at}].content[{number}].text is {type(text).__name__}; it is a text"
                )
            found.append(Text(at, number, text))
    return found


def _last_marker(message: Message) -> int | None:
    """Return the last part with a cache marker, past all parts where the message has one itself."""
    if _has_marker(message):
        return sys.maxsize
    content = message.get("content")
    if content is None or isinstance(content, str):
        return None
    return max((number for number, part in enumerate(content) if _has_marker(part)), default=None)


def _has_marker(holder: Message) -> bool:
    return any(holder.get(marker) is not None for marker in _CACHE_MARKERS)
