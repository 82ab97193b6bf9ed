"""What completions are worth, and what is said of a reward that can't tell."""

import sys
from typing import Any

import pytest

from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter, parse
from workers.trainers.failures import InvalidConfig
from workers.trainers.rewards import RewardFailed, reward_of

TEXTS: dict[str, Any] = {
    "prompts": ["2+2=", "3+3="],
    "completions": [" 4", "five"],
    "completion_ids": [[1], [2]],
    "columns": [{}, {}],
}


def columns(**values):
    """The texts with these columns."""
    rows = [dict(zip(values, each, strict=True)) for each in zip(*values.values(), strict=True)]
    return {**TEXTS, "columns": rows}


def test_length_is_worth_most_at_the_wanted_number_of_tokens():
    reward = reward_of("length:4", ())
    ids = [[1] * count for count in (0, 2, 4, 5, 8, 9)]

    assert reward(prompts=[""] * 6, completions=[""] * 6, completion_ids=ids, columns=[{}] * 6) == [
        0.0,
        0.5,
        1.0,
        0.75,
        0.0,
        0.0,
    ]


def test_pattern_is_found_anywhere():
    assert reward_of(r"regex:\d", ())(**TEXTS) == [1.0, 0.0]


def test_completion_is_compared_with_a_column_but_for_space_around():
    assert reward_of("exact", ["answer"])(**columns(answer=["4", "6"])) == [1.0, 0.0]
    assert reward_of("exact:sum", ["sum"])(**columns(sum=[4, "five "])) == [1.0, 1.0]


def test_of_a_conversation_the_last_message_counts():
    said = [[{"role": "assistant", "content": "4"}], [{"role": "assistant", "content": ""}]]

    assert reward_of(r"regex:\d", ())(**{**TEXTS, "completions": said}) == [1.0, 0.0]


def test_function_of_the_users_own_may_import_what_trainers_do_without(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text("WORTH = 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    path = tmp_path / "tracked.py"
    path.write_text("import wandb\ndef reward(prompts, completions):\n    return [wandb.WORTH] * len(prompts)\n")

    assert reward_of(str(path), ())(**TEXTS) == [0.5, 0.5]


def test_function_of_the_users_own_gets_prompts_completions_and_columns(tmp_path):
    path = tmp_path / "sums.py"
    path.write_text(
        "def reward(prompts, completions, **columns):\n"
        "    return [len(p) + len(c) + n for p, c, n in zip(prompts, completions, columns['n'])]\n"
    )
    reward = reward_of(str(path), ["n"])

    assert reward(**columns(n=[10, 20])) == [16.0, 28.0]
    assert reward.__name__ == "sums"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "must say what a completion is worth"),
        ("length:", "length:: say how many tokens .* as in length:64"),
        ("length:0", "say how many tokens"),
        ("judge", "is none of length:<tokens>, .*, whose name ends in .py"),
    ],
)
def test_reward_that_can_not_be_meant_is_refused(said, why):
    with pytest.raises(InvalidHyperparameter, match=why) as refused:
        parse("HF_TRAINER", "RLHF", {"reward": said})

    assert refused.value.name == "reward"


def test_column_that_is_called_as_an_argument_is_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def reward(prompts, completions, **_): return [1.0] * len(prompts)")

    with pytest.raises(InvalidConfig, match="is called completions, as an argument of reward is"):
        reward_of(str(path), ["completions", "n"])


@pytest.mark.parametrize(
    ("said", "names", "why"),
    [
        ("regex:(", (), r"regex:\(: missing \)"),
        ("exact", ("solution", "level"), "no column answer; they have solution, level. Name one"),
        ("/nowhere/reward.py", (), "reward.py: there is no Python file"),
    ],
)
def test_invalid_reward_is_named_with_a_remedy(said, names, why):
    with pytest.raises(InvalidConfig, match=why):
        reward_of(said, names)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def reward(prompts, completions, **_): return [1.0]", "gave 1 numbers for 2 completions"),
        ("def reward(prompts, completions, **_): return [1.0, float('nan')]", "gave nan; it must return finite"),
        ("def reward(prompts, completions, **_): return [1.0, 'much']", "failed: ValueError"),
        ("def reward(prompts, completions, **_): return 1 / 0", "failed: ZeroDivisionError"),
        ("def reward(prompts, completions): return [1, 2]", "failed: TypeError: .* unexpected keyword argument 'n'"),
    ],
)
def test_function_that_fails_is_named(tmp_path, body, why):
    path = tmp_path / "mine.py"
    path.write_text(body)

    with pytest.raises(RewardFailed, match=f"the reward mine {why}"):
        reward_of(str(path), ["n"])(**columns(n=[1, 2]))


@pytest.mark.parametrize(
    ("body", "raised", "why"),
    [
        ("def rewards(): pass", InvalidConfig, "mine.py has no function reward"),
        ("1 / 0", RewardFailed, "mine.py can't be loaded: ZeroDivisionError"),
    ],
)
def test_file_without_a_function_is_named(tmp_path, body, raised, why):
    path = tmp_path / "mine.py"
    path.write_text(body)

    with pytest.raises(raised, match=why):
        reward_of(str(path), ())
