"""What others may rely on: the front doors' names, and that nobody goes in by a back door."""

from __future__ import annotations

import ast
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleetopt

PACKAGE = Path(fleetopt.__file__).parent

FRONT_DOORS = {
    "fleetopt.cli": ["app", "main"],
    "fleetopt.connectors.gateway": [
        "Answer",
        "CompressionPool",
        "Compressor",
        "Gateway",
        "GatewayReason",
        "KafkaCompressor",
        "ModelCounter",
        "Pool",
        "Prompt",
        "Reason",
        "RequestLog",
        "RequestOutbox",
        "Route",
        "Setup",
        "WireOptions",
    ],
    "fleetopt.connectors.gateway_sync": ["SyncGateway"],
    "fleetopt.planner.plan": [
        "Admission",
        "Baseline",
        "BaselineName",
        "Binding",
        "CostUnit",
        "Infeasible",
        "InfeasibleReason",
        "Plan",
        "PlanRequest",
        "PoolPlan",
        "ReasonCode",
        "Workload",
        "loads",
        "plan",
        "plan_pinned",
        "search",
    ],
    "fleetopt.planner.replanner": [
        "Effect",
        "Event",
        "Idle",
        "Observed",
        "Publish",
        "RaiseAlert",
        "ReplanConfig",
        "ReplannerState",
        "ResolveAlert",
        "Silent",
        "Trigger",
        "overloaded",
        "resume",
        "step",
    ],
}
"""A name that goes from here breaks somebody's program: say so in CHANGELOG.md."""

LIBRARY_INTERNALS = {"_send_request", "_client"}
"""aiokafka has no public way to send a request that it does not know itself, nor to close the
connections of a consumer that does not stop."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text())


@pytest.mark.parametrize("name", FRONT_DOORS)
def test_front_doors_have_these_names_and_no_others(name: str) -> None:
    door = importlib.import_module(name)
    assert sorted(door.__all__) == sorted(FRONT_DOORS[name])
    assert all(hasattr(door, exported) for exported in door.__all__)


def test_no_module_imports_another_ones_private_names() -> None:
    found = [
        f"{path}: {node.module}.{alias.name}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert not found


def test_private_attributes_are_used_where_they_are_made() -> None:
    found = []
    for path, tree in modules():
        own = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
        }
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        found += [
            f"{path}:{node.lineno} {node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and node.attr not in own | LIBRARY_INTERNALS
        ]
    assert not found


def test_every_list_of_exports_names_what_is_there_and_public() -> None:
    listing = [path for path, tree in modules() if "__all__" in ast.dump(tree)]
    assert len(listing) >= len(FRONT_DOORS)
    for path in listing:
        dotted = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(f"fleetopt.{dotted}")
        for name in module.__all__:
            assert hasattr(module, name), f"{path}: {name}"
            assert not name.startswith("_"), f"{path}: {name}"


def test_the_package_tells_the_version_that_is_built(project: Path) -> None:
    built = tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"]
    assert fleetopt.__version__ == built
