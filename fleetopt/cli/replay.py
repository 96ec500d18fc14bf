"""`fleetopt replay`: a trace into Kafka, or straight through the core."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fleetopt.cli.options import (
    BootstrapOption,
    ConfigOption,
    OutputOption,
    check_fleet,
    check_input,
    settings_from,
)
from fleetopt.cli.output import ExitCode, Output, print_error, print_json, print_note

if TYPE_CHECKING:
    from fleetopt.cli.source import Source
    from fleetopt.config.settings import Settings
    from fleetopt.connectors.producer import MessageShape, Sent
    from fleetopt.pipeline.replay import Replayed, Timestamps


def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trace, or - for standard input.")],
    speed: Annotated[
        str, typer.Option(metavar="1|10|max", help="How many times as fast as recorded.")
    ] = "1",
    rate_multiplier: Annotated[
        float, typer.Option(metavar="M", help="Send M times the traffic, with the same lengths.")
    ] = 1.0,
    timestamps: Annotated[
        Literal["recorded", "now"] | None,
        typer.Option(help="Event time to send. Default: recorded with --speed max, else now."),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(help="Fleet of every request. Default: what the trace says, or `default`."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most so many.")] = None,
    message_shape: Annotated[
        Literal["batch", "record"],
        typer.Option(help="Columnar batches, or one JSON record a message as foreign senders do."),
    ] = "batch",
    offline: Annotated[
        bool,
        typer.Option(
            "--offline",
            help="No Kafka, no Redis: through the same core, and print what it recommends.",
        ),
    ] = False,
    bootstrap_servers: BootstrapOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send a trace's requests at their pace, as their gateway would have.

    Reads CSV (TIMESTAMP,ContextTokens,GeneratedTokens), JSON Lines of request records, and
    Mooncake's JSON Lines, gzipped or not. Promises as it goes that nothing earlier will come, so
    that slices close; at the end of a recorded trace the last one, too.

    \b
    Examples:
      fleetopt replay trace.csv --speed max
      fleetopt replay trace.csv --speed 10 --rate-multiplier 2.5 --fleet chat-h100
      fleetopt replay trace.csv --offline --config fleetopt.yaml
    """
    check_input(file)
    if fleet is not None:
        check_fleet(fleet)
    from fleetopt.cli.source import Source
    from fleetopt.connectors.producer import MessageShape
    from fleetopt.errors import InputError
    from fleetopt.pipeline.logs import configure_logs
    from fleetopt.pipeline.pacing import parse_speed
    from fleetopt.pipeline.replay import Timestamps

    try:
        factor = parse_speed(speed)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    if not 0 < rate_multiplier < float("inf"):
        raise typer.BadParameter(f"--rate-multiplier {rate_multiplier}: expected a number above 0")
    settings = settings_from(config, kafka={"bootstrap_servers": bootstrap_servers})
    configure_logs(settings.worker)
    source = Source(file, fleet, rate_multiplier, limit)
    if offline:
        from fleetopt.cli.offline import run_offline

        raise typer.Exit(run_offline(source, settings, factor, output))
    stamps = Timestamps(timestamps or ("recorded" if factor == float("inf") else "now"))
    code = asyncio.run(
        _to_kafka(source, settings, factor, stamps, MessageShape(message_shape), output)
    )
    raise typer.Exit(code)


async def _to_kafka(
    source: Source,
    settings: Settings,
    speed: float,
    timestamps: Timestamps,
    shape: MessageShape,
    output: Output,
) -> int:
    from fleetopt.cli.progress import progress
    from fleetopt.connectors.producer import RequestProducer
    from fleetopt.connectors.topics import ensure_topic
    from fleetopt.pipeline.replay import Replay, WallClock

    kafka = settings.kafka
    topic = await ensure_topic(
        kafka.bootstrap_servers,
        kafka.topic,
        kafka.partitions,
        kafka.retention_s,
        replication_factor=kafka.replication_factor,
    )
    for problem in topic.problems:
        print_note(problem)
    clock = WallClock()
    started_s = clock.now_s()
    with ExitStack() as stack:
        on_progress = stack.enter_context(progress("sent", source.expected))
        async with RequestProducer(kafka.bootstrap_servers, kafka.topic, shape) as producer:
            run = Replay(
                producer,
                speed=speed,
                timestamps=timestamps,
                slice_s=settings.window.slice_s,
                clock=clock,
                on_progress=on_progress,
            )
            replayed = await run.run(source.chunks())
    for note in source.notes:
        print_note(note)
    return report_sent(replayed, producer.sent, clock.now_s() - started_s, output)


def report_sent(replayed: Replayed, sent: Sent, took_s: float, output: Output) -> int:
    """Say what was sent and what was refused; return the exit code."""
    if output is Output.JSON:
        print_json(
            {
                "records_sent": sent.records,
                "messages_sent": sent.messages,
                "records_refused": sent.refused_records,
                "messages_refused": sent.refused_messages,
                "first_arrival_s": replayed.first_arrival_s,
                "last_arrival_s": replayed.last_arrival_s,
                "took_s": took_s,
            }
        )
    else:
        typer.echo(
            f"sent {sent.records:,} requests in {sent.messages:,} messages in {took_s:.1f} s, "
            f"arrivals from {_time(replayed.first_arrival_s)} to {_time(replayed.last_arrival_s)}"
        )
    if sent.refused_messages:
        print_error(
            f"the broker refused {sent.refused_records:,} requests in "
            f"{sent.refused_messages:,} messages, first: {sent.first_refusal}"
        )
        return ExitCode.FAILED
    return ExitCode.DONE


def _time(epoch_s: float | None) -> str:
    if epoch_s is None:
        return "–"
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
