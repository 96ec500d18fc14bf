"""Model names → the vocabulary and the chat template that come with FleetOpt.

Strict: every word of a name must be known. A near miss (Qwen3.5 for Qwen3, Llama 4 for Llama 3) has
another vocabulary, and a budget that is kept in the wrong tokens is not kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fleetopt.errors import ConfigError


class Vocabulary(StrEnum):
    """A bundled vocabulary, by quicktok's name for it."""

    CL100K = "cl100k_base"
    O200K = "o200k_base"
    O200K_HARMONY = "o200k_harmony"
    LLAMA3 = "llama3"
    QWEN3 = "qwen3"


class Template(StrEnum):
    """How a model's engine writes a chat as one text."""

    OPENAI = "openai"
    HARMONY = "harmony"
    LLAMA3 = "llama3"
    LLAMA3_DATED = "llama3_dated"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    CHATML = "chatml"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model whose tokens can be counted without its engine."""

    name: str
    vocabulary: Vocabulary
    template: Template


@dataclass(frozen=True, slots=True)
class _Family:
    pattern: re.Pattern[str]
    words: re.Pattern[str]
    vocabulary: Vocabulary
    template: Template


_RELEASE: Final = r"\d{4}-\d{2}-\d{2}|\d{4}|latest|preview|16k|32k|turbo|instruct"
_FORMAT: Final = (
    r"hf|fp8|fp16|bf16|nvfp4|mxfp4|awq|gptq|int4|int8|gguf|mlx|dynamic|kv|bnb|unsloth|[248]bit"
    r"|(?:quantized\.)?(?:w8a8|w4a16|w8a16)|q[2-8]_[0k](?:_[sml])?"
)
_BUILD: Final = rf"base|instruct|{_FORMAT}"


def _family(
    pattern: str, vocabulary: Vocabulary, template: Template, words: str = _BUILD
) -> _Family:
    return _Family(
        re.compile(rf"(?:{pattern})(?=-|$)"), re.compile(rf"-(?:{words})"), vocabulary, template
    )


_FAMILIES: Final = (
    _family(
        r"gpt-4o(?:-mini)?|chatgpt-4o|gpt-4\.1(?:-mini|-nano)?|gpt-4\.5|o1(?:-mini|-pro)?"
        r"|o3(?:-mini|-pro)?|o4-mini|gpt-5(?:-mini|-nano)?",
        Vocabulary.O200K,
        Template.OPENAI,
        _RELEASE,
    ),
    _family(r"gpt-4|gpt-3\.5|gpt-35", Vocabulary.CL100K, Template.OPENAI, _RELEASE),
    _family(r"gpt-oss-(?:20b|120b)", Vocabulary.O200K_HARMONY, Template.HARMONY),
    _family(r"(?:meta-)?llama-?3-(?:8b|70b)", Vocabulary.LLAMA3, Template.LLAMA3),
    _family(
        r"(?:meta-)?llama-?3\.1-(?:8b|70b|405b)|(?:meta-)?llama-?3\.2-(?:1b|3b)"
        r"|(?:meta-)?llama-?3\.3-70b",
        Vocabulary.LLAMA3,
        Template.LLAMA3_DATED,
    ),
    _family(
        r"qwen2-(?:0\.5b|1\.5b|7b|72b|57b-a14b)"
        r"|qwen2\.5(?:-coder|-math)?-(?:0\.5b|1\.5b|3b|7b|14b|32b|72b)",
        Vocabulary.QWEN3,
        Template.QWEN2,
        rf"{_BUILD}|1m",
    ),
    _family(
        r"qwen3-coder-(?:30b-a3b|480b-a35b)|qwen3-(?:4b|30b-a3b|235b-a22b)-instruct-2507",
        Vocabulary.QWEN3,
        Template.CHATML,
    ),
    _family(
        r"qwen3-(?:0\.6b|1\.7b|4b|8b|14b|32b|30b-a3b|235b-a22b)",
        Vocabulary.QWEN3,
        Template.QWEN3,
        rf"base|thinking-2507|{_FORMAT}",
    ),
)

_REFUSED: Final = (
    (r"qwen3\.[5-9]|qwen[4-9]", "Qwen3.5 and later have another vocabulary than Qwen3"),
    (r"qwen.*(?:vl|omni|audio|embedding|reranker)", "images, audio and embeddings are not text"),
    (r".*deepseek", "DeepSeek has a vocabulary of its own, and its distillates other templates"),
    (r".*llama-?4", "Llama 4 has another vocabulary than Llama 3"),
    (r".*llama-?3.*vision", "its prompts hold images"),
    (r".*llama-?2|llama-7b|llama-13b", "Llama 2 has a SentencePiece vocabulary"),
    (r".*(?:gemma|gemini)", "Gemma has a SentencePiece vocabulary"),
    (r".*(?:mi[sx]tral|magistral|devstral|codestral)", "Mistral has vocabularies of its own"),
    (r"gpt-4o.*(?:audio|realtime|transcribe|tts)", "audio is not text"),
    (r"(?:claude|glm|chatglm|kimi|phi|command|grok|yi|granite|nemotron)", "it is not bundled"),
)


def known_model(model: str) -> KnownModel:
    """Return what is bundled for a model.

    Case does not matter, and an organisation before a slash is left out.

    Raises
    ------
    ConfigError
        If any word of the name is unknown; says why, where that is known.

    Examples
    --------
    >>> known_model("Qwen/Qwen3-32B-FP8").vocabulary.value
    'qwen3'
    """
    name = model.strip().lower().rpartition("/")[2]
    for family in _FAMILIES:
        found = family.pattern.match(name)
        if found and re.fullmatch(rf"(?:{family.words.pattern})*", name[found.end() :]):
            return KnownModel(name, family.vocabulary, family.template)
    raise ConfigError(
        f"no bundled tokenizer counts exactly for model {model!r}{_because(name)}: give the "
        "engine's address, so that its own /tokenize counts (bundled: gpt-4o, gpt-4.1, o1, o3, "
        "o4-mini, gpt-5, gpt-4, gpt-3.5, gpt-oss, Llama 3 to 3.3, Qwen2, Qwen2.5, Qwen3)"
    )


def _because(name: str) -> str:
    for pattern, reason in _REFUSED:
        if re.match(pattern, name):
            return f" ({reason})"
    return ""
