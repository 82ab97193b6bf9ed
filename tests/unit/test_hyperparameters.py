"""Tables of hyperparameters: typed values, precise refusals, and one truth about what is supported."""

import pytest

from app.domain.hyperparameters import TABLES, InvalidHyperparameter, parse, supported
from workers.trainers.registry import TRAINERS, UnknownTrainer, load

SFT = ("HF_TRAINER", "SFT")


def test_every_table_has_a_trainer_and_every_trainer_a_table():
    assert TABLES.keys() == TRAINERS.keys()


def test_unknown_trainer_names_the_known_ones():
    with pytest.raises(UnknownTrainer, match="HF_TRAINER/SFT"):
        load("JAX", "DPO")


def test_defaults_fill_what_is_not_given():
    values = parse(*SFT, {})

    assert values.keys() == {item.name for item in TABLES[SFT]}
    assert values["learning_rate"] == 2e-5


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("learning_rate", "2e-4", 2e-4),
        ("learning_rate", " 1 ", 1.0),
        ("max_steps", "10", 10),
        ("num_train_epochs", "0.5", 0.5),
        ("packing", "True", True),
        ("packing", "0", False),
        ("lr_scheduler_type", "cosine", "cosine"),
    ],
)
def test_values_are_typed(name, text, value):
    parsed = parse(*SFT, {name: text})[name]

    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("learning_rate", "fast", "a number >= 0 and <= 10"),
        ("learning_rate", "nan", "a number"),
        ("learning_rate", "-1", ">= 0"),
        ("learning_rate", "11", "<= 10"),
        ("max_steps", "1.5", "a whole number >= -1"),
        ("max_steps", "", "a whole number"),
        ("packing", "maybe", "true or false"),
        ("lr_scheduler_type", "fast", "one of linear, cosine"),
    ],
)
def test_bad_value_says_what_is_expected(name, text, expected):
    with pytest.raises(InvalidHyperparameter, match=expected) as caught:
        parse(*SFT, {name: text})

    assert caught.value.name == name


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(InvalidHyperparameter, match=r"lora_r is unknown .* adam_beta1, .* weight_decay") as caught:
        parse(*SFT, {"lora_r": "16"})

    assert caught.value.name == "lora_r"


@pytest.mark.parametrize("table", TABLES.values(), ids=map("/".join, TABLES))
def test_defaults_lie_in_their_own_range(table):
    assert [item for item in table if item.parse(str(item.default)) != item.default] == []


@pytest.mark.parametrize("table", TABLES.values(), ids=map("/".join, TABLES))
def test_names_are_unique_and_explained(table):
    assert len({item.name for item in table}) == len(table)
    assert all(item.meaning for item in table)


def test_custom_script_gets_what_was_submitted():
    assert parse("CUSTOM", "SFT", {"anything": "goes"}) == {"anything": "goes"}


def test_supported_pairs():
    assert supported(*SFT)
    assert supported("CUSTOM", "DPO")
    assert not supported("HF_TRAINER", "RLHF")
