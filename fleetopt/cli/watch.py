"""`fleetopt watch`: recommendations as they are published."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleetopt.cli.options import ConfigOption, OutputOption, check_fleet, settings_from
from fleetopt.cli.output import ExitCode, Output

if TYPE_CHECKING:
    from fleetopt.config.settings import Settings
    from fleetopt.planner.recommendation import Recommendation


def watch(
    fleet: Annotated[str, typer.Option(help="Fleet to watch.")] = "default",
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many recommendations.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the newest and end; fail if there is none.")
    ] = False,
    redis_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Redis. Default: redis.url.")
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print a fleet's recommendation, and each new one, until Ctrl-C.

    Nothing is missed by a lost connection: the newest is read again after each reconnection.
    With --output json, one recommendation a line.

    \b
    Examples:
      fleetopt watch --fleet chat-h100
      fleetopt watch --once --output json | jq .boundary_tokens
    """
    from fleetopt.pipeline.logs import configure_logs

    check_fleet(fleet)
    settings = settings_from(config, redis={"url": redis_url})
    configure_logs(settings.worker)
    from redis.exceptions import RedisError

    from fleetopt.errors import ServiceError

    try:
        if once:
            raise typer.Exit(asyncio.run(_once(settings, fleet, output)))
        asyncio.run(_follow(settings, fleet, count, output))
    except RedisError as error:  # such as a key that is not ours, or no permission
        raise ServiceError(f"Redis refuses to tell of fleet {fleet}: {error}") from error


async def _once(settings: Settings, fleet: str, output: Output) -> int:
    from fleetopt.cli.output import print_error
    from fleetopt.connectors.recommendation_store import RecommendationStore
    from fleetopt.connectors.redis import UNREACHABLE, connect
    from fleetopt.errors import ServiceError

    client = connect(settings.redis)
    try:
        async with asyncio.timeout(2 * settings.redis.timeout_s):
            newest = await RecommendationStore(client).read(fleet)
    except UNREACHABLE as error:
        raise ServiceError(
            f"Redis does not answer: {str(error) or type(error).__name__}; start it, or set "
            "redis.url (FLEETOPT_REDIS__URL)"
        ) from error
    finally:
        await client.aclose()
    if newest is None:
        print_error(
            f"fleet {fleet} has no recommendation: is a worker running, has a slice been closed, "
            "is the name right?"
        )
        return ExitCode.FAILED
    show(newest, output)
    return ExitCode.DONE


async def _follow(settings: Settings, fleet: str, count: int | None, output: Output) -> None:
    from fleetopt.connectors.recommendation_store import RecommendationStore
    from fleetopt.connectors.redis import connect, wait_until_ready

    client = connect(settings.redis)
    try:
        await wait_until_ready(client, settings.redis.url)
        left = count
        async for recommendation in RecommendationStore(client).follow(fleet):
            show(recommendation, output)
            if left is not None:
                left -= 1
                if not left:
                    return
    finally:
        await client.aclose()


def show(recommendation: Recommendation, output: Output) -> None:
    """Print one recommendation, as lines or as a line of JSON."""
    import msgspec

    from fleetopt.cli.recommendation_text import describe

    if output is Output.JSON:
        sys.stdout.write(msgspec.json.encode(recommendation).decode() + "\n")
    else:
        sys.stdout.write("\n".join(describe(recommendation)) + "\n")
    sys.stdout.flush()
