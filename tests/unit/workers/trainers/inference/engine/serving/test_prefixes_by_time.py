"""Times show nothing of what was asked before: no request is answered sooner because another one began alike."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.systems.timing import SURE, difference, measured, shown

LENGTH, REST = 1000, 16  # tokens of a prompt, and of what a cache of the others would leave to compute
ROUNDS = 30
SIZES = {"max_position_embeddings": 2048, "hidden_size": 64, "intermediate_size": 256}


@pytest.mark.long
@pytest.mark.parametrize("length_of_copy", [LENGTH, LENGTH - REST], ids=["whole", "prefix"])
def test_prompt_of_another_project_is_not_answered_sooner(
    serve: Callable[..., Any], save_model: Callable[..., Any], length_of_copy: int
) -> None:
    asking = serve(save_model("long", **SIZES))
    drawn = random.Random(11)
    secret = [0]  # replaced before each is asked

    def prompt(length: int) -> list[int]:
        return [drawn.randrange(3, 300) for _ in range(length)]

    def ask(tokens: list[int]) -> None:
        assert asking.ask(tokens, max_new_tokens=1).wait().last.refused is None

    def ask_alike() -> None:
        ask([*secret[:length_of_copy], *prompt(LENGTH - length_of_copy)])

    for _ in range(3):
        ask(prompt(LENGTH))
    kinds = {"alike": ask_alike, "new": lambda: ask(prompt(LENGTH)), "short": lambda: ask(prompt(REST))}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(ROUNDS):
        secret[:] = prompt(LENGTH)
        ask(secret)  # by the other project
        for name, seconds in measured(1, kinds, seed=number).items():
            times[name] += seconds

    assert difference(times["short"], times["new"]) < -SURE, f"the measurement shows a cache: {shown(times)}"
    assert abs(difference(times["alike"], times["new"])) < SURE, shown(times)
