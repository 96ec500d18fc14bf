"""The text in a chat message, and what is said of anything else that is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetopt.errors import InputError

_TEXT_TYPES = ("text", "input_text")


def text_parts(content: object, at: int) -> list[str]:
    """Return the text parts of `messages[at].content`: none, one, or as many as are listed.

    Raises InputError for images and other parts that are not text: what an engine makes of these
    in tokens is known to it alone.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, Sequence):
        raise InputError(
            f"messages[{at}].content is a {type(content).__name__}; expected text or a list of "
            "text parts"
        )
    return [_part(part, f"messages[{at}].content[{index}]") for index, part in enumerate(content)]


def _part(part: object, path: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind not in _TEXT_TYPES or not isinstance(text, str):
        raise InputError(
            f"{path} is a part of type {kind!r}: only text can be counted exactly; send such a "
            "prompt unchanged"
        )
    return text


def check_unicode(text: str) -> None:
    """Raise InputError where a text holds what no encoding has: half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise lone_surrogate(error) from error


def lone_surrogate(error: UnicodeEncodeError) -> InputError:
    """Return what is wrong with a text that could not be encoded."""
    return InputError(
        f"character {error.start} of the text is a lone surrogate "
        f"(U+{ord(error.object[error.start]):04X}), which no tokenizer can read: replace it, or "
        "send the prompt unchanged"
    )
