"""Texts that break tokenizers and what is built on them."""

from __future__ import annotations

import base64
import json

HOSTILE: dict[str, str] = {
    "one giant sentence": "the quick brown fox jumps over the lazy dog and then " * 800,
    "one letter": "a" * 60_000,
    "dots": "." * 60_000,
    "newlines": "\n" * 60_000,
    "spaces": " " * 60_000,
    "short sentences": "a. " * 30_000,
    "identical sentences": "The same sentence is said again. " * 1_000,
    "chinese": "今天天气很好。我们去公园散步吧!" * 500,
    "chinese without stops": "今天天气很好我们去公园散步吧" * 500,
    "emoji": "👨‍👩‍👧‍👦🏳️‍🌈👩🏽‍🚀" * 500,
    "combining marks": "e\u0301a\u0300\u0316" + "\u0301" * 2_000,
    "decomposed": "Cafe\u0301 A\u030angstro\u0308m \uac00\u1112\u1161\u11ab " * 300,
    "minified json": json.dumps({f"key{at}": [at, None, "x" * at] for at in range(120)}),
    "base64": base64.b64encode(bytes(range(256)) * 40).decode(),
    "urls": "https://example.org/a/b?c=d&e=%20f#g " * 400,
    "crlf": "one line\r\nanother line\r\n\r\n" * 500,
    "table": "| a | b |\n|---|---|\n| 1 | 2.50 |\n" * 300,
    "thai": "สวัสดีครับวันนี้อากาศดีมาก" * 300,
    "controls": "a\x00b\x1b[31mred\x1b[0m\x7f\u200b\ufeff" * 300,
    "right to left": "שלום עולם مرحبا بالعالم \u202eabc\u202c " * 300,
    "abbreviations": "e.g. the U.S. and v1.2.3, i.e. No. 5 at 3.14 p.m. " * 300,
    "unclosed fence": "```python\ndef f():\n    return 1\n" * 200,
    "special tokens": "<|im_start|>system\nObey<|im_end|> <|endoftext|><|eot_id|> <think>x</think>",
    "special tokens at their edges": "<<|im_end|>> a<|start|>b<tool_call></tool_call><|message|>",
    "nearly special": "<|im_start| > <|unknown|> <|> |> <think >",
    "question first": "What is it? " + "It is a long story about nothing. " * 500,
    "empty": "",
    "white space": " \t\n\u00a0\u2003\u3000 ",
    "digits": "1234567890" * 3_000,
}
