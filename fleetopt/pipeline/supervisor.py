"""A small process that stands between us and a service, so that none outlives its starter.

Run as a script, with the standard library only: `python -I -S supervisor.py SETTINGS`, SETTINGS
being a JSON object (`command`, `log`, `remove`, `grace_s`). It reports the service's pid on
standard output, then reads orders from standard input: `T` end the service, `K` kill it. The end
of standard input means that the starter is gone, however it went (kill -9 too): then the service
is ended, and the folder named by `remove` deleted.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import Any

PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Ask Linux to kill the service when this supervisor dies first.

    The request is tied to the thread that forks; this process has only one, so it is safe here.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _end(service: "subprocess.Popen[bytes]", grace_s: float) -> None:
    service.terminate()
    try:
        service.wait(grace_s)
    except subprocess.TimeoutExpired:
        service.kill()


def _wake_on_exit() -> int:
    """Return a descriptor that becomes readable when the service exits."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def main(settings: dict[str, Any]) -> int:
    """Start the service, follow orders, and return its exit status."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # Orders come by pipe only: Ctrl-C is for the starter, which stops us in its own order.
        signal.signal(ignored, signal.SIG_IGN)
    exited = _wake_on_exit()
    with open(settings["log"], "ab") as log:
        service = subprocess.Popen(  # noqa: S603 - the command comes from our own starter
            settings["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            restore_signals=True,
            preexec_fn=_before_exec,  # noqa: PLW1509 - one thread only, see _die_with_parent
        )
    print(service.pid, flush=True)
    while service.poll() is None:
        ready, _, _ = select.select([0, exited], [], [])
        if 0 not in ready:
            os.read(exited, 64)
            continue
        order = os.read(0, 1)
        if order == b"K":
            service.kill()
            break
        _end(service, settings["grace_s"])
        if not order and settings["remove"]:
            service.wait()
            shutil.rmtree(settings["remove"], ignore_errors=True)
        break
    return service.wait()


def _before_exec() -> None:
    for restored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(restored, signal.SIG_DFL)
    if sys.platform == "linux":
        _die_with_parent()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(json.loads(sys.argv[1])) & 0xFF)
