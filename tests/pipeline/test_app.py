"""A worker's app is what its settings say, and touches nothing before it starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleetopt.config.settings import load_settings
from fleetopt.pipeline.app import create_app


@pytest.mark.parametrize("port", [None, 7_001])
def test_the_web_server_is_off_unless_it_has_a_port(port: int | None) -> None:
    async def web() -> tuple[bool, int]:
        conf = create_app(load_settings(worker={"web_port": port})).conf
        return conf.web_enabled, conf.web_port

    enabled, found = asyncio.run(web())
    assert enabled == (port is not None)
    assert port is None or found == port


def test_it_leaves_nothing_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def first_start() -> None:
        await create_app(load_settings()).on_first_start()

    monkeypatch.chdir(tmp_path)
    asyncio.run(first_start())
    assert list(tmp_path.iterdir()) == []
