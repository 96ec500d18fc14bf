"""`plan --html FILE`: a page of its own, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from fleetopt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetopt.cli.report_charts import Drawn
    from fleetopt.cli.traffic import Traffic
    from fleetopt.cli.validation import Validation
    from fleetopt.planner.explain import Explanation
    from fleetopt.planner.plan import Infeasible, Plan, PlanRequest

_PACKAGES: Final = ("jinja2", "matplotlib")


def check_page(path: Path, *inputs: str | Path | None) -> None:
    """Refuse a page that could not be written, or over what is read, before there is a plan."""
    for read in (each for each in inputs if each is not None):
        if path.is_file() and Path(read).is_file() and path.samefile(read):
            raise typer.BadParameter(f"--html {path}: is read by this command; name another file")
    if path.is_dir() or not path.name:
        raise typer.BadParameter(f"--html {path}: is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"--html {path}: there is no folder {path.parent}")
    missing = [name for name in _PACKAGES if not _is_there(name)]
    if missing:
        raise ConfigError(
            f"--html needs {' and '.join(missing)}: run pip install 'fleetopt[report]'"
        )


def _is_there(package: str) -> bool:
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def page_of(
    found: Plan | Infeasible,
    traffic: Traffic,
    request: PlanRequest,
    why: Explanation | None,
    validation: Validation | None,
    result: Mapping[str, Any],
) -> str:
    """Return the page of a plan; `result` is what `--output json --explain` prints."""
    from fleetopt.cli.report_page import page

    charts = _charts(found, traffic, request, why)
    if validation:
        from fleetopt.cli.report_charts import draw_validation

        drawn = draw_validation(validation.simulation, validation.planned.predicted)
        charts |= {"validation": drawn} if drawn else {}
    return page(result, _premises(request), charts)


def _charts(
    found: Plan | Infeasible, traffic: Traffic, request: PlanRequest, why: Explanation | None
) -> dict[str, Drawn]:
    from fleetopt.cli import report_charts
    from fleetopt.planner.cost_map import cost_map
    from fleetopt.planner.plan import Plan

    workload = traffic.workload
    if not isinstance(found, Plan) or why is None:
        return {"lengths": report_charts.draw_lengths(workload, None)}
    return {
        "lengths": report_charts.draw_lengths(workload, found),
        "curve": report_charts.draw_curve(found, why),
        "map": report_charts.draw_map(found, cost_map(workload, request)),
        "baselines": report_charts.draw_baselines(found),
    }


def _premises(request: PlanRequest) -> dict[str, Any]:
    """Return what the JSON does not say: the engines' figures, and what made the page."""
    engines = {request.short_profile.name: request.short_profile}
    engines[request.long_profile.name] = request.long_profile
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": version("fleetopt"),
        "slo_base_s": request.slo_ttft_p99.base_s,
        "slo_e2e_base_s": request.slo_e2e_p99.base_s if request.slo_e2e_p99 else None,
        "slo_itl_p99_s": request.slo_itl_p99_s,
        "engines": [msgspec.to_builtins(engine) for engine in engines.values()],
    }


def write_page(path: Path, text: str) -> None:
    """Write a page; who reads it meanwhile sees the old one or the new one, never a part.

    Raises
    ------
    ConfigError
        If the file can't be written.
    """
    try:
        _write(path, text)
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from error


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # such as /dev/stdout: nothing to replace
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()  # of a link, the file that it leads to
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, draft)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
