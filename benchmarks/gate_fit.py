"""Fits the weights of `fleetopt/compressor/evidence.py` to the tuning half of the corpus.

`python -m benchmarks.gate_fit` rewrites fleetopt/compressor/weights.py: logistic regression of
"this line isn't prose" with an L2 penalty, each kind of text counting the same.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.gate_corpus import Sample, samples
from fleetopt.compressor import weights as module
from fleetopt.compressor.blocks import Content
from fleetopt.compressor.evidence import flags_of, lengths
from fleetopt.compressor.fences import fenced
from fleetopt.compressor.lines import Lines, Mark

Floats = NDArray[np.float64]

# White space says what indentation and words say already.
_WHITE: Final = (Mark.SPACE, Mark.TAB, Mark.NEWLINE)
_PENALTY: Final = 2e-5
# Prose taken for code only loses a saving, code taken for prose damages a prompt.
_ATOMS_COUNT: Final = 1.0
# Characters with weights of their own at a line's ends; letters and digits share theirs.
_GROUPS: Final = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")
_ENDS: Final = (*_GROUPS, *(chr(c) for c in range(33, 129) if not chr(c).isalnum()))


def fit(corpus: Sequence[Sample]) -> tuple[list[str], Floats]:
    """Return the features' names and their weights."""
    features, labels, kinds, sizes = [], [], [], []
    names: list[str] = []
    for sample in corpus:
        if sample.lines is None:
            continue
        lines = Lines.of(sample.text)
        names, found = _features(lines)
        kept = np.ones(len(found), np.bool_)
        for span in fenced(lines, sample.text, np.ones(len(found))):
            kept[span.first : span.end] = False
        features.append(found[kept])
        labels.append(labelled(sample, lines)[kept])
        size = np.minimum(lengths(lines)[kept], 80)
        sizes.append(size)
        kinds += [sample.kind] * len(size)
    x, y = np.concatenate(features), np.concatenate(labels)
    weight = np.concatenate(sizes)
    totals: Counter[str] = Counter()
    for kind, size in zip(kinds, weight, strict=True):
        totals[kind] += size
    weight = weight / np.array([totals[kind] for kind in kinds]) / len(totals)
    weight *= np.where(y > 0, _ATOMS_COUNT, 1.0)
    penalty = np.full(x.shape[1], _PENALTY)
    scale = np.maximum(np.abs(x).max(axis=0), 1e-9)

    def loss(w: Floats) -> tuple[float, Floats]:
        margin = y * (x @ w)
        value = float(weight @ np.logaddexp(0, -margin) + penalty @ (w * scale) ** 2)
        slope = -y * weight / (1 + np.exp(np.clip(margin, -500, 500)))
        return value, x.T @ slope + 2 * penalty * w * scale**2

    found_weights: Floats = minimize(
        loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 600}
    ).x
    return names, found_weights


def labelled(sample: Sample, lines: Lines) -> Floats:
    """Return 1 for each line that isn't prose, −1 for each that is."""
    assert sample.lines is not None
    newlines = np.frombuffer(lines.data[: lines.size].tobytes(), np.uint8) == 10
    number = np.concatenate(([0], np.cumsum(newlines)))[lines.starts]
    return np.array(
        [
            -1.0 if sample.lines[n] is Content.PROSE else 1.0
            for n in np.minimum(number, len(sample.lines) - 1)
        ]
    )


def _features(lines: Lines) -> tuple[list[str], Floats]:
    length = lengths(lines)
    first, last = lines.character(0), lines.data[lines.last]
    flags = flags_of(lines)
    columns = [
        *(lines.counts[:, mark] * (mark not in _WHITE) / length for mark in Mark),
        lines.pairs / length,
        *(np.isin(first, [ord(one) for one in group]) for group in _ENDS),
        *(np.isin(last, [ord(one) for one in group]) for group in _ENDS),
        *flags.values(),
        np.ones(len(length)),
    ]
    names = [
        *(f"mark {mark.name}" for mark in Mark),
        "pairs",
        *(f"first {group}" for group in _ENDS),
        *(f"last {group}" for group in _ENDS),
        *(f"flag {name}" for name in flags),
        "flag every line",
    ]
    return names, np.stack([column.astype(np.float64) for column in columns], axis=1)


def _source(names: Sequence[str], found: Floats) -> str:
    table = dict(zip(names, found.round(2).tolist(), strict=True))

    def ends(which: str) -> str:
        weights = {group: table[f"{which} {group}"] for group in _ENDS}
        return f"{which.upper()}: Final = _table({ {c: w for c, w in weights.items() if w}!r})"

    marks = {f"Mark.{mark.name}": table[f"mark {mark.name}"] for mark in Mark}
    flags = {name[5:]: w for name, w in table.items() if name.startswith("flag ")}
    return f'''"""The score's weights, made by `python -m benchmarks.gate_fit`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.compressor.lines import Mark

def _table(weights: dict[str, float]) -> NDArray[np.float64]:
    table = np.zeros(256)
    for characters, weight in weights.items():
        for character in characters:
            table[ord(character)] = weight
    return table


def _by_mark(weights: dict[Mark, float]) -> NDArray[np.float64]:
    return np.array([weights.get(mark, 0.0) for mark in Mark])


# By the line's first character and by its last; U+0080 stands for all beyond ASCII.
{ends("first")}
{ends("last")}
# By the share of each mark in the line, and of pairs of marks.
MARKS: Final = _by_mark({{{", ".join(f"{name}: {w}" for name, w in marks.items() if w)}}})
PAIRS: Final = {table["pairs"]}
FLAGS: Final[dict[str, float]] = {flags!r}
'''


def main() -> None:
    """Fit, and rewrite the module."""
    names, found = fit([sample for sample in samples() if sample.for_tuning])
    path = Path(module.__file__)
    path.write_text(_source(names, found))
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(path)], check=True)


if __name__ == "__main__":
    main()
