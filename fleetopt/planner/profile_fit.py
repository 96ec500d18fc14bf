"""An engine profile's coefficients from timings of one engine, and how far they can be trusted."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from fleetopt.errors import InputError

_Floats = NDArray[np.float64]


class TimingKind(StrEnum):
    """What an iteration did while it was timed."""

    DECODE = "decode"
    PREFILL = "prefill"


@dataclass(frozen=True, slots=True)
class TimingPoint:
    """One timed iteration: `batch` sequences of the same length, all decoding or all prefilling.

    `context_tokens` is what each sequence holds while it decodes, or each prompt's length.
    """

    kind: TimingKind
    context_tokens: int
    batch: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A fitted coefficient; its standard error is None where the data can't tell."""

    value: float
    standard_error: float | None


@dataclass(frozen=True, slots=True)
class ProfileFit:
    """Coefficients of one engine, in the units of `EngineProfile`, and what they leave over."""

    base_iteration_s: Coefficient  # W
    per_sequence_s: Coefficient  # h
    per_context_token_s: Coefficient  # κ
    prefill_token_s: Coefficient  # p
    prefill_token_context_s: Coefficient  # c
    prefill_overhead_s: Coefficient
    """What a prefill iteration takes without tokens. The planner counts W in its place."""

    decode_points: int
    prefill_points: int
    decode_max_relative_error: float
    prefill_max_relative_error: float
    planned_prefill_error_low: float
    """Signed: the planner's W + p·m + c·Σ against each prefill timing; negative is too fast."""

    planned_prefill_error_high: float


@dataclass(frozen=True, slots=True)
class _Line:
    """A weighted, non-negative least-squares fit."""

    values: _Floats
    relative_errors: _Floats
    unit_variances: _Floats  # times the error's variance; NaN where a coefficient is held at 0
    free: int


def fit_profile(points: Sequence[TimingPoint]) -> ProfileFit:
    """Fit W, h, κ to decode timings and p, c to prefill timings.

    Both are least squares on relative errors, with no coefficient below 0: a decode iteration of
    k sequences with context L takes W + h·k + κ·k·L; a prefill iteration of k prompts of n tokens
    takes a + p·k·n + c·k·n²/2. The overhead a is fitted and reported, not used: weights stream in
    while prefill computes, so that a is mostly below W.

    Parameters
    ----------
    points
        Timings of one engine (GPU, model, tensor parallel degree), in seconds, in any order. At
        least three decode timings, over two batch sizes and two contexts, and three prefill
        timings over three prompt lengths.

    Returns
    -------
    ProfileFit
        Standard errors assume one relative error for both kinds; they are None for a coefficient
        that the bound holds at 0, and for all when there are no more timings than coefficients.

    Raises
    ------
    InputError
        If a kind of timing is missing that a coefficient needs, if a timing is not above 0, or if
        the decode timings leave no base iteration.

    Notes
    -----
    The non-negative fit is the bounded-variable least squares of [1]_. Standard errors are those
    of ordinary least squares over the coefficients that are not at their bound.

    References
    ----------
    .. [1] P. B. Stark, R. L. Parker, "Bounded-Variable Least-Squares: an Algorithm and
       Applications", Computational Statistics 10, 1995.

    Examples
    --------
    >>> from itertools import product
    >>> decode = [
    ...     TimingPoint(TimingKind.DECODE, length, batch, 0.01 + batch * (2e-5 + 4e-8 * length))
    ...     for length, batch in product((500, 2000), (1, 32))
    ... ]
    >>> prefill = [
    ...     TimingPoint(TimingKind.PREFILL, length, 1, 0.004 + 5e-5 * length + 1e-9 * length**2)
    ...     for length in (500, 2000, 8000)
    ... ]
    >>> fitted = fit_profile([*decode, *prefill])
    >>> f"{fitted.base_iteration_s.value:.4f} {fitted.prefill_token_context_s.value:.1e}"
    '0.0100 2.0e-09'
    """
    for point in points:
        if not (0.0 < point.duration_s < np.inf and point.context_tokens > 0 and point.batch > 0):
            raise InputError(f"{point} can't be fitted; expected tokens, batch and duration > 0")
    decode = [point for point in points if point.kind is TimingKind.DECODE]
    prefill = [point for point in points if point.kind is TimingKind.PREFILL]
    missing = [*_missing_decode(decode), *_missing_prefill(prefill)]
    if missing:
        raise InputError("too few timings: " + "; ".join(missing))
    decoded = _fit(_decode_terms(decode), _durations(decode))
    prefilled = _fit(_prefill_terms(prefill), _durations(prefill))
    if decoded.values[0] <= 0.0:
        raise InputError(
            "the decode timings leave no base iteration: they fall to 0 s with the batch; "
            "expected the time of whole iterations, at small batches too"
        )
    variance = _error_variance(decoded, prefilled)
    base, per_sequence, per_context = _coefficients(decoded, variance)
    overhead, per_token, per_token_context = _coefficients(prefilled, variance)
    planned = _prefill_terms(prefill) @ np.array(
        [base.value, per_token.value, per_token_context.value]
    )
    planned_errors = planned / _durations(prefill) - 1.0
    return ProfileFit(
        base_iteration_s=base,
        per_sequence_s=per_sequence,
        per_context_token_s=per_context,
        prefill_token_s=per_token,
        prefill_token_context_s=per_token_context,
        prefill_overhead_s=overhead,
        decode_points=len(decode),
        prefill_points=len(prefill),
        decode_max_relative_error=float(np.abs(decoded.relative_errors).max()),
        prefill_max_relative_error=float(np.abs(prefilled.relative_errors).max()),
        planned_prefill_error_low=float(planned_errors.min()),
        planned_prefill_error_high=float(planned_errors.max()),
    )


def _durations(points: Sequence[TimingPoint]) -> _Floats:
    return np.array([point.duration_s for point in points])


def _decode_terms(points: Sequence[TimingPoint]) -> _Floats:
    return np.array([(1.0, p.batch, float(p.batch) * p.context_tokens) for p in points])


def _prefill_terms(points: Sequence[TimingPoint]) -> _Floats:
    return np.array(
        [
            (1.0, float(p.batch) * p.context_tokens, p.batch * p.context_tokens**2 / 2)
            for p in points
        ]
    )


def _missing_decode(points: Sequence[TimingPoint]) -> list[str]:
    if not points:
        return ["there are no decode timings; add some at two batch sizes and two contexts"]
    missing = []
    if len({point.batch for point in points}) < 2:
        missing.append(f"decode is timed at batch {points[0].batch} only; add another batch size")
    if len({point.context_tokens for point in points}) < 2:
        missing.append(
            f"decode is timed at context {points[0].context_tokens} only; add another context"
        )
    if not missing and _rank(_decode_terms(points)) < 3:
        missing.append(
            "decode is timed where batch and context change together; "
            "add a timing at a batch and a context that were not combined"
        )
    return missing


def _missing_prefill(points: Sequence[TimingPoint]) -> list[str]:
    if not points:
        return ["there are no prefill timings; add some at three prompt lengths"]
    if _rank(_prefill_terms(points)) < 3:
        lengths = sorted({point.context_tokens for point in points})
        return [
            f"prefill is timed at {', '.join(map(str, lengths))} tokens only; "
            "add prompt lengths until there are three"
        ]
    return []


def _rank(terms: _Floats) -> int:
    return int(np.linalg.matrix_rank(terms / terms.max(axis=0)))


def _fit(terms: _Floats, durations_s: _Floats) -> _Line:
    """Minimise the sum of squared relative errors over coefficients ≥ 0."""
    weighted = terms / durations_s[:, np.newaxis]
    scale = np.linalg.norm(weighted, axis=0)  # seconds and nanoseconds in one matrix
    solved = lsq_linear(
        weighted / scale, np.ones(len(terms)), (0.0, np.inf), method="bvls", tol=1e-14
    )
    free = solved.active_mask == 0
    unit = np.full(terms.shape[1], np.nan)
    kept = (weighted / scale)[:, free]
    unit[free] = np.diag(np.linalg.inv(kept.T @ kept)) / scale[free] ** 2
    values = np.where(free, solved.x / scale, 0.0)
    return _Line(values, weighted @ values - 1.0, unit, int(free.sum()))


def _error_variance(*lines: _Line) -> float:
    """Return the variance of the relative errors; NaN if no timing is left over."""
    left = sum(len(line.relative_errors) - line.free for line in lines)
    squares = sum(float(line.relative_errors @ line.relative_errors) for line in lines)
    return squares / left if left > 0 else np.nan


def _coefficients(line: _Line, variance: float) -> list[Coefficient]:
    errors = np.sqrt(line.unit_variances * variance)
    return [
        Coefficient(float(value), float(error) if np.isfinite(error) else None)
        for value, error in zip(line.values, errors, strict=True)
    ]
