"""How long a compression takes, beside sumy's TextRank and LexRank in the same run."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.compression_corpus import LANGUAGES, SHARED_DATA, Case, context_of, paragraphs
from benchmarks.rival import python_with
from fleetopt.compressor.compress import compress
from fleetopt.compressor.document import Document
from fleetopt.compressor.messages import Text
from fleetopt.compressor.outcome import Compressed, Stage
from fleetopt.compressor.tokens import TokenCounter
from fleetopt.connectors.token_counter import counter_for

MODEL: Final = "Qwen/Qwen3-32B"
KEEP: Final = 0.67
RIVALS: Final = ("TextRank", "LexRank")
_PROCESS: Final = Path(__file__).resolve().parent / "sumy_process.py"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    tokens: tuple[int, ...] = (1_000, 4_000, 8_000, 16_000)
    rounds: int = 31
    # sumy's time grows with the square of the length.
    rival_rounds: int = 3
    rival_tokens: int = 16_000


FULL: Final = Sizes()
QUICK: Final = Sizes((500, 1_000), 3, 1, 500)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one prompt; `rivals_s` by method, empty where the prompt is too long for them."""

    language: str
    tokens: int
    units: int
    took_s: Sequence[float]
    stage_s: dict[Stage, float]
    rivals_s: dict[str, Sequence[float]]

    @property
    def median_s(self) -> float:
        """The usual time."""
        return median(self.took_s)

    @property
    def p90_s(self) -> float:
        """One in ten takes longer."""
        return sorted(self.took_s)[int(0.9 * len(self.took_s))]


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that was timed."""

    timings: list[Timing]
    # Exponent of time over tokens, by language: 1 is proportional.
    growth: dict[str, float]


def measure(sizes: Sizes, tell: Callable[[str], None] = lambda _: None) -> Figures:
    """Time prompts of each size and language."""
    counter = counter_for(MODEL)
    timings = []
    with _sumy() as ask:
        for language in LANGUAGES:
            for tokens in sizes.tokens:
                tell(f"{LANGUAGES[language]}, {tokens:,} tokens")
                timings.append(_timing(language, tokens, sizes, counter, ask))
    growth = {
        name: _growth([one for one in timings if one.language == name])
        for name in LANGUAGES.values()
    }
    return Figures(timings, growth)


def is_possible() -> bool:
    """Whether the texts are there."""
    return SHARED_DATA.is_dir()


def _timing(
    language: str,
    tokens: int,
    sizes: Sizes,
    counter: TokenCounter,
    ask: Callable[..., dict[str, Any]],
) -> Timing:
    chosen = context_of(paragraphs(language), 0, tokens, counter)
    case = Case("\n\n".join(one.text for one in chosen), chosen[1].questions[0][0], "")
    before = counter.count_prompt(case.messages)
    took_s, stages = [], []
    units = Document.of([Text(0, None, case.context)], 240, 0).unit_texts()
    rivals_s: dict[str, list[float]] = {name: [] for name in RIVALS}
    for round_ in range(-2, sizes.rounds):
        start = time.perf_counter()
        outcome = compress(
            case.messages,
            int(KEEP * before),
            counter,
            tokens_before=before,
            clock=time.perf_counter,
        )
        spent_s = time.perf_counter() - start
        assert isinstance(outcome, Compressed)
        if round_ >= 0:  # the first ones warm up
            took_s.append(spent_s)
            stages.append(outcome.stage_s)
        if 0 <= round_ < sizes.rival_rounds and tokens <= sizes.rival_tokens:
            for name, times in rivals_s.items():
                answer = ask(method=name, units=units, keep=int(KEEP * len(units)))
                times.append(answer["took_s"])
    return Timing(
        language=LANGUAGES[language],
        tokens=before,
        units=len(units),
        took_s=took_s,
        stage_s={stage: median(one[stage] for one in stages) for stage in Stage},
        rivals_s={name: times for name, times in rivals_s.items() if times},
    )


def _growth(timings: Sequence[Timing]) -> float:
    """Return the slope of log time over log tokens, by least squares."""
    points = [(math.log(one.tokens), math.log(one.median_s)) for one in timings]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return slope / sum((x - mean_x) ** 2 for x, _ in points)


@contextmanager
def _sumy() -> Iterator[Callable[..., dict[str, Any]]]:
    """Run sumy as long as it is asked."""
    python = python_with("sumy, numpy", "numpy", "sumy")
    with subprocess.Popen(
        [str(python), str(_PROCESS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(**case: Any) -> dict[str, Any]:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"sumy ended while it was asked for {case['method']}")
            answer: dict[str, Any] = json.loads(line)
            return answer

        try:
            yield ask
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait(timeout=60)
