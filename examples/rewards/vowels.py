"""What a completion is worth to `jobs/rlhf-grpo.json`: the share of vowels in it.

The columns of the records beside the prompt come as lists, too; this one needs none of them.
"""

from typing import Any

# ruff: noqa: ARG001  (every reward is called with the same arguments)


def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """One number for each completion, in their order."""
    return [share_of_vowels(completion) for completion in completions]


def share_of_vowels(text: str) -> float:
    return sum(letter in "aeiou" for letter in text.lower()) / len(text) if text else 0.0
