"""Which model has which vocabulary: known names pass, near misses are refused."""

from __future__ import annotations

import pytest

from fleetopt.connectors.model_names import Template, Vocabulary, known_model
from fleetopt.errors import ConfigError


@pytest.mark.parametrize(
    ("model", "vocabulary", "template"),
    [
        ("gpt-4o", Vocabulary.O200K, Template.OPENAI),
        ("openai/gpt-4o-mini-2024-07-18", Vocabulary.O200K, Template.OPENAI),
        ("chatgpt-4o-latest", Vocabulary.O200K, Template.OPENAI),
        ("gpt-4.1-nano", Vocabulary.O200K, Template.OPENAI),
        ("o1-preview", Vocabulary.O200K, Template.OPENAI),
        ("O3-mini", Vocabulary.O200K, Template.OPENAI),
        ("o4-mini-2025-04-16", Vocabulary.O200K, Template.OPENAI),
        ("gpt-4", Vocabulary.CL100K, Template.OPENAI),
        ("gpt-4-0613", Vocabulary.CL100K, Template.OPENAI),
        ("gpt-4-turbo-2024-04-09", Vocabulary.CL100K, Template.OPENAI),
        ("gpt-3.5-turbo-16k", Vocabulary.CL100K, Template.OPENAI),
        ("openai/gpt-oss-120b", Vocabulary.O200K_HARMONY, Template.HARMONY),
        ("meta-llama/Meta-Llama-3-8B-Instruct", Vocabulary.LLAMA3, Template.LLAMA3),
        ("meta-llama/Llama-3.1-8B-Instruct", Vocabulary.LLAMA3, Template.LLAMA3_DATED),
        ("Meta-Llama-3.1-405B-Instruct-FP8", Vocabulary.LLAMA3, Template.LLAMA3_DATED),
        ("RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic", Vocabulary.LLAMA3, Template.LLAMA3_DATED),
        ("x/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", Vocabulary.LLAMA3, Template.LLAMA3_DATED),
        ("meta-llama/Llama-3.2-3B", Vocabulary.LLAMA3, Template.LLAMA3_DATED),
        (" meta-llama/Llama-3.3-70B-Instruct ", Vocabulary.LLAMA3, Template.LLAMA3_DATED),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", Vocabulary.QWEN3, Template.QWEN2),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", Vocabulary.QWEN3, Template.QWEN2),
        ("Qwen/Qwen2.5-14B-Instruct-1M", Vocabulary.QWEN3, Template.QWEN2),
        ("qwen2-72b-instruct", Vocabulary.QWEN3, Template.QWEN2),
        ("Qwen/Qwen3-32B", Vocabulary.QWEN3, Template.QWEN3),
        ("Qwen/Qwen3-0.6B-Base", Vocabulary.QWEN3, Template.QWEN3),
        ("QWEN/QWEN3-235B-A22B-FP8", Vocabulary.QWEN3, Template.QWEN3),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", Vocabulary.QWEN3, Template.QWEN3),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", Vocabulary.QWEN3, Template.CHATML),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", Vocabulary.QWEN3, Template.CHATML),
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", Vocabulary.QWEN3, Template.QWEN3),
        ("unsloth/Qwen3-8B-GGUF-Q4_K_M", Vocabulary.QWEN3, Template.QWEN3),
    ],
)
def test_known_names(model: str, vocabulary: Vocabulary, template: Template) -> None:
    found = known_model(model)
    assert (found.vocabulary, found.template) == (vocabulary, template)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("Qwen/Qwen3.5-27B", "another vocabulary"),
        ("qwen3.6-35b-a3b", "another vocabulary"),
        ("Qwen/Qwen3-VL-8B-Instruct", "images"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "images"),
        ("Qwen/Qwen2.5-Omni-7B", "images"),
        ("Qwen/Qwen3-Embedding-8B", "embeddings"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama 4"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "images"),
        ("meta-llama/Llama-2-7b-chat-hf", "SentencePiece"),
        ("google/gemma-3-27b-it", "SentencePiece"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "Mistral"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mistral"),
        ("deepseek-ai/DeepSeek-V3", "DeepSeek"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "DeepSeek"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "DeepSeek"),
        ("gpt-4o-audio-preview", "audio"),
    ],
)
def test_near_misses_are_refused_with_the_reason(model: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        known_model(model)
    assert "/tokenize" in str(error.value)
    assert repr(model) in str(error.value)


@pytest.mark.parametrize(
    "model",
    ["", "/", "qwen", "qwen3", "qwen3-9b", "qwen3-8b-instruct", "qwen3-8b-my-finetune", "qwen3-8bx",
     "qwen3-8b-", "Qwen3-Next-80B-A3B-Instruct", "QwQ-32B", "llama-3.1", "llama-3.2-8b", "llama3",
     "Llama-3.1-Nemotron-70B-Instruct", "Llama-Guard-3-8B", "gpt-2", "gpt-4o-", "gpt-oss",
     "gpt-4-vision", "o5", "xgpt-4o", "Llama-3.1-8B-Instruct/extra", "qwen2.5-7b\n"],
)  # fmt: skip
def test_names_with_an_unknown_word_are_refused(model: str) -> None:
    if model.endswith("\n"):  # white space around a name is not part of it
        assert known_model(model).name == model.strip()
        return
    with pytest.raises(ConfigError, match="no bundled tokenizer"):
        known_model(model)
