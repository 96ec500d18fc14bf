"""What became of prompts that were to be compressed."""

from enum import IntEnum


class CompressionOutcome(IntEnum):
    """What an attempt came to; requests that nobody tried to compress have none."""

    COMPRESSED = 0
    NOT_ELIGIBLE = 1
    """The prompt is of a kind that is sent on unchanged, whenever it is tried."""
    FAILED = 2
    """Nothing is known against the prompt: no time, no room, no token counter, or a fault."""
