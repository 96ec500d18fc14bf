"""The page itself: what `--output json` prints, with charts, as HTML.

Every number of the page is a `<data>` element whose value is the one of the JSON, unrounded.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fleetopt.cli import output
from fleetopt.cli.arrivals_text import METHODS
from fleetopt.cli.arrivals_text import REASONS as METHOD_REASONS
from fleetopt.cli.explain_text import PREMISES
from fleetopt.cli.plan_text import BASELINES, BINDINGS, CONTEXT_LENGTH_LABEL, REASONS
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetopt.cli.report_charts import Drawn

TEMPLATE: Final = "report.html.j2"
UNKNOWN: Final = "–"
SMALLEST: Final = 1e-9
"""Of the price of a token in an hour; what is less is rounding."""


def page(
    result: Mapping[str, Any], premises: Mapping[str, Any], charts: Mapping[str, Drawn]
) -> str:
    """Return the page of a plan, or of why there is none.

    `result` is what `--output json` prints, `premises` what else is said of where it comes from.
    """
    loader = PackageLoader("fleetopt.cli")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    absent = dict.fromkeys(("plan", "baselines", "explanation", "validation", "infeasible"))
    return environment.get_template(TEMPLATE).render(
        {**absent, **result},
        premises=premises,
        charts={name: _marked(chart) for name, chart in charts.items()},
        reasons=REASONS,
        baseline_names=BASELINES,
        bindings=BINDINGS,
        premise_names=PREMISES,
        methods=METHODS,
        method_reasons=METHOD_REASONS,
        label=CONTEXT_LENGTH_LABEL,
        units={unit: unit.per_h for unit in CostUnit},
        violations_max=TTFT_VIOLATIONS_MAX,
    )


def _marked(chart: Drawn) -> dict[str, str]:
    # The drawing is an XML library's own text: all that came from outside is escaped in it.
    caption = chart.caption.replace(" %", "\N{NO-BREAK SPACE}%")
    return {"svg": Markup(chart.svg), "title": chart.title, "caption": caption}  # noqa: S704


def _number(show: Callable[..., str]) -> Callable[..., Markup]:
    """Make a filter that shows a number and keeps its value beside the rounding."""

    def marked(value: float | None, *how: Any) -> Markup:
        if value is None:
            return Markup(UNKNOWN)  # noqa: S704 - a constant
        return Markup('<data value="{}">{}</data>').format(json.dumps(value), show(value, *how))

    return marked


def _cost(value: float, unit: str) -> str:
    return output.cost(value, CostUnit(unit))


def _signed_cost(value: float, unit: str) -> str:
    shown = output.cost(value, CostUnit(unit), "+")
    return shown[1:] if float(shown.replace(",", "")) == 0 else shown.replace("-", "−")


def _gpus(value: float) -> str:
    return _signed_cost(value, CostUnit.USD)  # hundredths too


def _signed_small(value: float) -> str:
    """Show the price of one token to three digits: it may be far below a cent."""
    if abs(value) < SMALLEST:
        return "0"
    digits = max(2 - math.floor(math.log10(abs(value))), 2)
    return f"{value:+,.{digits}f}".replace("-", "−")


def _signed_percent(ratio: float) -> str:
    return output.signed_percent(ratio).replace("-", "−").replace(" ", "\N{NO-BREAK SPACE}")


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "usd": _number(output.usd),
    "cost": _number(_cost),
    "signed_cost": _number(_signed_cost),
    "signed_gpus": _number(_gpus),
    "power": _number(output.power),
    "three_digits": _number(lambda value: f"{value:.3g}"),
    "signed_small": _number(_signed_small),
    "signed_percent": _signed_percent,  # of two numbers: it is not in the JSON
    "percent": _number(output.percent),
    "seconds": _number(output.seconds),
    "milliseconds": _number(lambda value: f"{value * 1e3:.1f} ms"),
    "count": _number(output.tokens),
    "rate": _number(lambda value: f"{value:,.4g}"),
    "whole": _number(lambda value: f"{value:,.0f}"),
    "factor": _number(lambda value: f"{value:.2f}"),
    "exact": _number(lambda value: f"{Decimal(f'{value:g}'):f}"),  # no exponents
}
