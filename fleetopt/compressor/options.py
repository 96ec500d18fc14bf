"""What a caller may set about compression."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CompressOptions:
    """Defaults are the conservative choice.

    Raises
    ------
    ValueError
        A figure is out of its range.
    """

    # The caller's category of the request; it wins over what the text looks like.
    category: str | None = None
    # What is asked of the prompt, where the caller knows; else it is looked for in the prompt.
    question: str | None = None
    # Tokens of the prompt that the engine holds in its prefix cache.
    cached_prompt_tokens: int = 0
    # A cached prefix is cheaper than a shorter prompt that isn't cached.
    keep_cached_prefix: bool = True
    # Less than this share of the prose left: the prompt stays as it is.
    min_kept_share: float = 0.5
    # A last user message up to this length is the question, and stays.
    question_tokens: int = 256
    # Prose between atoms that is shorter stays.
    min_prose_tokens: int = 200
    # Tool results are data that the model asked for; cut them only where the caller says so.
    compress_tool_results: bool = False
    weights: Literal["default", "paper"] = "default"

    def __post_init__(self) -> None:
        if not isinstance(self.question, str | None):
            raise TypeError(f"question is {type(self.question).__name__}; it is a text")
        if not 0 <= self.min_kept_share <= 1:
            raise ValueError(f"min_kept_share is {self.min_kept_share}; it is a share from 0 to 1")
        for name in ("cached_prompt_tokens", "question_tokens", "min_prose_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it is 0 or more")
        if self.weights not in ("default", "paper"):
            raise ValueError(f"weights is {self.weights!r}; it is 'default' or 'paper'")
