"""The command line: `app` for what embeds it, `main` for the console script.

One file a command. A command imports what it runs when it runs, so that help comes at once.
"""

from __future__ import annotations

from fleetopt.cli.main import app, main

__all__ = ["app", "main"]
