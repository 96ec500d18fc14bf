"""Texts of known content: files that installed packages bring, and generated ones.

Half of them, chosen by a hash of their name, is for tuning the content gate; the other half is
for reporting. Every line has its content, or none where it isn't known.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import random
import site
import sysconfig
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

from fleetopt.compressor.blocks import Content

SHARED: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "xquad"
_ROOTS: Final = (
    *site.getsitepackages(),
    sysconfig.get_path("stdlib"),
    "/usr/lib/python3",
    "/usr/share",
    "/usr/include",
    "/usr/local/go/src",
    "/usr/lib/node_modules",
    "/usr/local/lib/node_modules",
)
_KINDS: Final = {
    ".py": ("Python", Content.CODE),
    ".js": ("JavaScript", Content.CODE),
    ".ts": ("TypeScript", Content.CODE),
    ".go": ("Go", Content.CODE),
    ".rs": ("Rust", Content.CODE),
    ".java": ("Java", Content.CODE),
    ".sh": ("shell", Content.CODE),
    ".pl": ("Perl", Content.CODE),
    ".sql": ("SQL", Content.CODE),
    ".css": ("CSS", Content.CODE),
    ".c": ("C, C++", Content.CODE),
    ".h": ("C, C++", Content.CODE),
    ".hpp": ("C, C++", Content.CODE),
    ".yaml": ("YAML, TOML", Content.CODE),
    ".yml": ("YAML, TOML", Content.CODE),
    ".toml": ("YAML, TOML", Content.CODE),
    ".json": ("JSON", Content.JSON),
    ".html": ("HTML, XML", Content.XML),
    ".xml": ("HTML, XML", Content.XML),
    ".svg": ("HTML, XML", Content.XML),
    ".csv": ("CSV", Content.TABLE),
    ".md": ("Markdown", Content.PROSE),
    ".rst": ("reStructuredText", Content.PROSE),
}
_PLAIN_NAMES: Final = ("LICENSE", "LICENCE", "COPYING", "README", "NOTICE")
_SMALLEST_BYTES: Final = 800
_LARGEST_CHARS: Final = 20_000
_FILES_PER_KIND: Final = 120
_GENERATED: Final = 40


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, what it is, and what each of its lines is."""

    name: str
    kind: str
    content: Content
    text: str
    lines: tuple[Content, ...] | None
    """None where the lines' contents aren't known."""

    @property
    def for_tuning(self) -> bool:
        """Tell whether it belongs to the half that the gate was tuned on."""
        return zlib.crc32(self.name.encode()) % 2 == 0


def samples() -> list[Sample]:
    """Return all texts that this machine has or can make, in a fixed order."""
    return [*_files(), *_generated()]


def _files() -> Iterator[Sample]:
    found: dict[str, list[tuple[int, str, Content]]] = {}
    seen: set[str] = set()
    for root in dict.fromkeys(os.path.realpath(root) for root in _ROOTS):
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                stem, suffix = os.path.splitext(name)
                kind, content = _KINDS.get(suffix, ("", Content.PROSE))
                if stem.startswith(_PLAIN_NAMES) and suffix in {"", ".txt", ".md"}:
                    kind, content = "licences, README", Content.PROSE
                if name == "copyright":
                    kind, content = "copyright records", Content.PROSE
                path = os.path.join(folder, name)
                if kind and path not in seen:
                    seen.add(path)
                    rank = zlib.crc32(path.encode())
                    found.setdefault(kind, []).append((rank, path, content))
    for kind, candidates in sorted(found.items()):
        taken, bodies = 0, set[int]()
        for _, path, content in sorted(candidates):
            text = _read(path)
            if len(text) < _SMALLEST_BYTES or hash_of(text) in bodies:
                continue
            bodies.add(hash_of(text))
            contents = _line_contents(kind, content, text)
            yield Sample(path, kind, _mainly(contents, text) or content, text, contents)
            taken += 1
            if taken == _FILES_PER_KIND:
                break


def _mainly(contents: tuple[Content, ...] | None, text: str) -> Content | None:
    """Return what half of a text's characters or more are, if that's known."""
    sizes: Counter[Content] = Counter()
    for content, line in zip(contents or (), text.split("\n"), strict=False):
        sizes[content] += len(line)
    if 2 * sizes[Content.PROSE] >= sizes.total():
        return Content.PROSE if contents else None
    return sizes.most_common(1)[0][0]


def hash_of(text: str) -> int:
    """Return a hash that tells copies of a file apart from other files."""
    return zlib.crc32(text[:4000].encode("utf-8", "surrogatepass"))


def _read(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            text = file.read(_LARGEST_CHARS)
    except (UnicodeDecodeError, FileNotFoundError, PermissionError):
        return ""  # Not a text that we can use; there are enough others.
    return text[: text.rfind("\n") + 1] if len(text) == _LARGEST_CHARS and "\n" in text else text


def _line_contents(kind: str, content: Content, text: str) -> tuple[Content, ...] | None:
    if kind == "Markdown":
        return _markdown_lines(text)
    if kind == "reStructuredText":
        return None
    return (content,) * (text.count("\n") + 1)


def _markdown_lines(text: str) -> tuple[Content, ...]:
    """Return what a Markdown parser makes of each line."""
    contents = [Content.PROSE] * (text.count("\n") + 1)
    atoms = {
        "fence": Content.CODE,
        "code_block": Content.CODE,
        "table_open": Content.TABLE,
        "html_block": Content.XML,
    }
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type in atoms and token.map:
            for line in range(token.map[0], min(token.map[1], len(contents))):
                contents[line] = atoms[token.type]
    return tuple(contents)


def _all(name: str, kind: str, content: Content, text: str) -> Sample:
    return Sample(name, kind, content, text, (content,) * (text.count("\n") + 1))


def _generated() -> Iterator[Sample]:
    paragraphs = [*_OWN_PROSE]
    if SHARED.is_dir():
        for language in ("en", "zh"):
            read = _xquad(language)
            paragraphs += read if language == "en" else []
            yield from _prose(language, read)
            yield from _chats(language)
    yield from _prose("other scripts", _OTHER_SCRIPTS * 3)
    for number in range(_GENERATED):
        dice = random.Random(number)
        for kind, content, text in _made(dice):
            yield _all(f"{kind} {number}", kind, content, text)
        yield _mixed(number, dice, paragraphs)


def _xquad(language: str) -> list[str]:
    data = json.loads((SHARED / f"xquad.{language}.json").read_text())
    return [part["context"] for article in data["data"] for part in article["paragraphs"]]


def _prose(name: str, paragraphs: list[str]) -> Iterator[Sample]:
    for number in range(0, len(paragraphs), 6):
        some = paragraphs[number : number + 6]
        dice = random.Random(number)
        yield _all(f"{name} plain {number}", "prose", Content.PROSE, "\n\n".join(some))
        wrapped = "\n\n".join(textwrap.fill(one, dice.choice((60, 72, 80, 100))) for one in some)
        yield _all(f"{name} wrapped {number}", "prose, wrapped", Content.PROSE, wrapped)
        mark = dice.choice(("- ", "* ", "1. ", "> ", "• "))
        listed = "\n".join(
            mark + sentence + "." for one in some for sentence in one.split(". ") if sentence
        )
        yield _all(f"{name} list {number}", "lists, quotes", Content.PROSE, listed)


def _chats(language: str) -> Iterator[Sample]:
    data = json.loads((SHARED / f"xquad.{language}.json").read_text())
    pairs = [
        (pair["question"], pair["answers"][0]["text"])
        for article in data["data"]
        for part in article["paragraphs"]
        for pair in part["qas"]
    ]
    for number in range(0, len(pairs), 60):
        dice = random.Random(number)
        asks, answers = dice.choice(
            (
                ("User", "Assistant"),
                ("user", "assistant"),
                ("Q", "A"),
                ("[10:32] Ann", "[10:33] Bo"),
            )
        )
        text = "\n".join(
            f"{asks}: {question}\n{answers}: It is {answer}."
            for question, answer in pairs[number : number + 12]
        )
        yield _all(f"chat {language} {number}", "chat transcripts", Content.PROSE, text)


def _made(dice: random.Random) -> Iterator[tuple[str, Content, str]]:
    yield "logs", Content.LOG, _log(dice)
    yield "tables", Content.TABLE, _table(dice)
    yield "LaTeX maths", Content.MATH, _maths(dice)
    yield "JSON, minified", Content.JSON, json.dumps(_object(dice, 5), separators=(",", ":"))
    rows = [json.dumps({"id": n, **_object(dice, 2)}) for n in range(20)]
    yield "JSON lines", Content.JSON, "\n".join(rows)
    yield "JSON, indented", Content.JSON, json.dumps(_object(dice, 4), indent=dice.choice((2, 4)))
    yield "base64, hex, URLs", Content.DATA, _data(dice)
    yield "diffs", Content.CODE, _diff(dice)
    yield "stack traces", Content.CODE, _trace(dice)


_NAMES: Final = (
    "worker",
    "pool",
    "request",
    "token",
    "budget",
    "queue",
    "replica",
    "window",
    "sketch",
    "plan",
)
_LEVELS: Final = ("INFO", "WARN", "ERROR", "DEBUG")


def _words(dice: random.Random, least: int = 3, most: int = 9) -> str:
    return " ".join(dice.choice(_NAMES) for _ in range(dice.randint(least, most)))


def _log(dice: random.Random) -> str:
    style = dice.randrange(5)
    lines = []
    for n in range(40):
        clock = f"{n // 60 + 10:02}:{n % 60:02}:{dice.randrange(60):02}"
        level, word = dice.choice(_LEVELS), dice.choice(_NAMES)
        address = f"10.0.{dice.randrange(255)}.{dice.randrange(255)}"
        said = _words(dice)
        lines.append(
            (
                f"2026-03-{n % 28 + 1:02} {clock},{dice.randrange(999):03} {level} {word}: {said}",
                f"2026-03-{n % 28 + 1:02}T{clock}Z {level.lower()} {said} {word}_id={n} ms={n * 7}",
                f"Mar {n % 28 + 1:2} {clock} host{n % 4} {word}[{dice.randrange(9999)}]: {said}",
                f'{address} - - [0{n % 9 + 1}/Mar/2026:{clock} +0000] "GET /{word}/{n} HTTP/1.1" '
                f"200 {dice.randrange(9999)}",
                f"[{clock}] [{level}] {said}",
            )[style]
        )
    return "\n".join(lines)


def _table(dice: random.Random) -> str:
    columns, style = dice.randint(2, 6), dice.randrange(5)
    head = [dice.choice(_NAMES) for _ in range(columns)]
    body = [
        [dice.choice((_words(dice, 1, 2), f"{dice.random() * 100:.2f}")) for _ in head]
        for _ in range(dice.randint(6, 30))
    ]
    rows = [head, *body]
    if style == 0:
        lined = [head, ["---"] * columns, *body]
        return "\n".join("| " + " | ".join(row) + " |" for row in lined)
    if style in {1, 2}:
        return "\n".join(("\t", ",")[style - 1].join(row) for row in rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    if style == 3:
        return "\n".join("   ".join(row).rstrip() for row in padded)
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    drawn = ["| " + " | ".join(row) + " |" for row in padded]
    return "\n".join([rule, drawn[0], rule, *drawn[1:], rule])


def _maths(dice: random.Random) -> str:
    terms = [
        r"\frac{\partial f}{\partial x_i} + \sum_{k=0}^{n} a_k x^k",
        r"E[W_q] = \frac{C(c, \rho)}{c\mu - \lambda} \cdot \frac{1 + C_s^2}{2}",
        r"\int_{0}^{\infty} e^{-\lambda t} \, dt &= \frac{1}{\lambda} \\",
        r"\mathbf{x}^{T} \Sigma^{-1} \mathbf{x} \leq \chi^2_{p}(\alpha)",
    ]
    opening, closing = dice.choice(
        (("$$", "$$"), (r"\[", r"\]"), (r"\begin{align*}", r"\end{align*}"))
    )
    blocks = []
    for _ in range(8):
        body = "\n".join(dice.choice(terms) for _ in range(dice.randint(1, 4)))
        blocks.append(f"{opening}\n{body}\n{closing}")
    return "\n\n".join(blocks)


def _object(dice: random.Random, depth: int) -> dict[str, object]:
    def value(depth: int) -> object:
        choice = dice.randrange(6 if depth else 4)
        if choice == 4:
            return [value(depth - 1) for _ in range(dice.randint(1, 5))]
        if choice == 5:
            return _object(dice, depth - 1)
        return (_words(dice), dice.randrange(10**6), dice.random(), None)[choice]

    return {f"{dice.choice(_NAMES)}_{n}": value(depth) for n in range(dice.randint(4, 9))}


def _data(dice: random.Random) -> str:
    raw = dice.randbytes(1500)
    style = dice.randrange(4)
    if style == 0:
        return base64.encodebytes(raw).decode()
    if style == 1:
        return base64.b64encode(raw).decode()
    if style == 2:
        return "\n".join(textwrap.wrap(raw.hex(), 64))
    return "\n".join(
        f"https://example.org/{dice.choice(_NAMES)}/{dice.randbytes(8).hex()}?{dice.choice(_NAMES)}={n}"
        for n in range(25)
    )


def _diff(dice: random.Random) -> str:
    old = Path(dice.choice(sorted(Path(__file__).parent.glob("*.py")))).read_text().splitlines()
    new = [line for n, line in enumerate(old) if n and dice.random() > 0.03]
    shown = difflib.unified_diff(old, new, "a/module.py", "b/module.py", lineterm="")
    return "\n".join(list(shown)[:120])


def _trace(dice: random.Random) -> str:
    style = dice.randrange(3)
    names = [dice.choice(_NAMES) for _ in range(15)]
    lines = [dice.randrange(1, 900) for _ in names]
    at = list(zip(names, lines, strict=True))
    if style == 0:
        body = "\n".join(
            f'  File "/srv/app/{name}.py", line {line}, in run_{name}\n    return {name}.run(x)'
            for name, line in at
        )
        return f"Traceback (most recent call last):\n{body}\nValueError: no {names[0]} is left"
    if style == 1:
        body = "\n".join(
            f"\tat org.example.{n}.{n.title()}.run({n.title()}.java:{k})" for n, k in at
        )
        failed = f"java.lang.IllegalStateException: no {names[0]}"
        return f"{failed}\n{body}\nCaused by: java.io.IOException"
    body = "\n".join(f"    at {name} (/srv/app/{name}.js:{line}:17)" for name, line in at)
    return f"TypeError: Cannot read properties of undefined (reading '{names[0]}')\n{body}"


def _mixed(number: int, dice: random.Random, paragraphs: list[str]) -> Sample:
    """Put prose and other things after each other, as people do who ask about them."""
    texts: list[str] = []
    contents: list[Content] = []
    made = list(_made(dice))
    made.append(("code", Content.CODE, _function(dice)))
    for _ in range(4):
        prose = dice.choice(paragraphs)
        prose = textwrap.fill(prose, 80) if dice.random() < 0.5 else prose
        _, content, text = dice.choice(made[-1:] + made)
        for part, what in ((prose, Content.PROSE), (text, content)):
            body = part.rstrip("\n") + dice.choice(("\n", "\n\n"))
            texts.append(body)
            contents += [what] * body.count("\n")
    return Sample(
        f"mixed {number}", "mixed", Content.PROSE, "".join(texts), (*contents, Content.PROSE)
    )


def _function(dice: random.Random) -> str:
    """Return a function of the benchmarks' own source, with its neighbours."""
    source = Path(dice.choice(sorted(Path(__file__).parent.glob("*.py")))).read_text()
    parts = source.split("\n\n\n")
    return dice.choice(parts[1:] or parts)


_OWN_PROSE: Final = (
    "A fleet that was planned for last week's traffic is rarely the one that this week needs. "
    "Lengths change first, then rates, and the cheapest boundary moves with them. Whoever looks "
    "only at the mean finds out when the queue has grown already.",
    "We compared three ways to share the load. The first gives every request to the pool with the "
    "fewest waiting; the second knows how long each will take (more or less); the third tosses a "
    "coin. On quiet days nobody sees a difference, and on busy ones everybody does.",
)
_OTHER_SCRIPTS: Final = [
    (
        "น้ำเป็นสิ่งจำเป็นสำหรับสิ่งมีชีวิตทุกชนิด คนเราดื่มน้ำทุกวัน "
        "และใช้น้ำในการทำอาหาร ซักผ้า และเพาะปลูก เมื่อฝนไม่ตกนาน แม่น้ำก็แห้ง "
        "และชาวนาก็ลำบาก"
    ),
    (
        "الماء ضروري لكل كائن حي. يشرب الناس الماء كل يوم، ويستخدمونه في الطبخ والزراعة. "
        "عندما لا ينزل المطر تجف الأنهار ويعاني الفلاحون."
    ),
    (
        "पानी हर जीव के लिए ज़रूरी है। लोग रोज़ पानी पीते हैं और उससे खाना पकाते हैं। जब "
        "बारिश नहीं होती, नदियाँ सूख जाती हैं और किसानों को कठिनाई होती है।"
    ),
    (
        "Вода нужна всему живому. Люди пьют её каждый день, готовят на ней еду и "
        "поливают поля. Когда долго нет дождя, реки мелеют, и крестьянам приходится "
        "трудно."
    ),
    (
        "水はすべての生き物に必要です。人々は毎日水を飲み、料理や農業に使います。雨が長く"
        "降らないと川は干上がり、農家は困ります。"
    ),
    (
        "물은 모든 생물에게 필요하다. 사람들은 매일 물을 마시고 요리와 농사에 쓴다. 비가 "
        "오래 오지 않으면 강이 마르고 농부들은 어려움을 겪는다."
    ),
    (
        "Το νερό είναι απαραίτητο για κάθε ζωντανό οργανισμό. Οι άνθρωποι το πίνουν κάθε "
        "μέρα και το χρησιμοποιούν στο μαγείρεμα και στη γεωργία."
    ),
]
