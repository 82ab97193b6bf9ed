"""Tables of hyperparameters: typed values, precise refusals, and one truth about what is supported."""

import json

import pytest

from app.domain.spec.hyperparameters.parsing import (
    TABLES,
    InvalidHyperparameter,
    check_data,
    describe,
    names,
    parse,
    supported,
)
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from workers.trainers.registry import TRAINERS, UnknownTrainer, load

SFT = ("HF_TRAINER", "SFT")


def test_every_table_has_a_trainer_and_every_trainer_a_table():
    assert TABLES.keys() == {pair for pair in TRAINERS if pair[1] != REWARD_METHOD}


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


def test_pairs_of_framework_and_training_type_are_supported_as_documented():
    assert supported(*SFT)
    assert supported("CUSTOM", "DPO")
    assert not supported("MEGATRON", "RLHF")


@pytest.mark.parametrize(
    ("training_type", "given", "expected"),
    [
        ("SFT", {"lr_power": "2"}, "lr_power has no effect with lr_scheduler_type linear; .* polynomial"),
        ("SFT", {"min_lr_rate": "0.2", "lr_scheduler_type": "cosine"}, "cosine_with_min_lr or "),
        ("SFT", {"warmup_steps": "5", "lr_scheduler_type": "constant"}, "constant_with_warmup"),
        ("SFT", {"warmup_steps": "5", "warmup_ratio": "0.1"}, "are alternatives"),
        ("SFT", {"early_stopping_threshold": "0.1"}, "without early_stopping_patience"),
        ("LORA", {"packing": "true", "group_by_length": "true"}, "group_by_length has no effect with packing"),
        ("LORA", {"lr_scheduler_type": "polynomial", "lr_end": "1"}, "lr_end 1.0 must be below learning_rate"),
        ("CONTINUED_PRETRAIN", {"max_steps": "0"}, "0 steps train nothing"),
    ],
)
def test_combination_that_makes_no_sense_is_refused_with_a_remedy(training_type, given, expected):
    with pytest.raises(InvalidHyperparameter, match=expected) as caught:
        parse("HF_TRAINER", training_type, given)

    assert caught.value.name in given


def test_default_value_may_be_given_with_any_other_field():
    assert parse(*SFT, {"lr_power": "1", "warmup_steps": "0", "lr_scheduler_type": "constant"})["lr_power"] == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("all-linear", "all-linear"),
        (" q_proj, v_proj ,q_proj", "q_proj,v_proj"),
        ("model.layers.0.mlp", "model.layers.0.mlp"),
        ("", ""),
    ],
)
def test_names_are_kept_once_each(text, value):
    parsed = parse("HF_TRAINER", "LORA", {"lora_target_modules": text})["lora_target_modules"]

    assert parsed == value
    assert ",".join(names(parsed)) == value


@pytest.mark.parametrize("text", ["a,,b", "a b", "../x", "(.*)", ",", "x" * 5000])
def test_what_is_no_list_of_names_is_refused(text):
    with pytest.raises(InvalidHyperparameter, match="a list of names separated by commas"):
        parse("HF_TRAINER", "LORA", {"modules_to_save": text})


@pytest.mark.parametrize(
    ("given", "evaluates", "streaming", "expected"),
    [
        ({"early_stopping_patience": "2"}, False, False, "early_stopping_patience needs evaluations"),
        ({"load_best_model_at_end": "true"}, False, False, "load_best_model_at_end needs evaluations"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, False, False, "needs evaluations"),
        ({}, True, True, "set max_steps above 0"),
        ({"max_steps": "5", "packing": "true"}, True, True, "packing needs all records at once"),
    ],
)
def test_what_the_data_can_not_give_is_refused(given, evaluates, streaming, expected):
    with pytest.raises(InvalidHyperparameter, match=expected):
        check_data(parse(*SFT, given), evaluates=evaluates, streaming=streaming)


def test_what_the_data_gives_is_fine():
    values = parse(*SFT, {"early_stopping_patience": "2", "max_steps": "5"})

    check_data(values, evaluates=True, streaming=True)
    with pytest.raises(InvalidHyperparameter):
        check_data(values, evaluates=False, streaming=True)


def test_table_describes_itself_as_data():
    rows = {row["name"]: row for row in describe("HF_TRAINER", "LORA")}

    assert rows.keys() == {item.name for item in TABLES["HF_TRAINER", "LORA"]}
    assert rows["lora_r"] == {
        "name": "lora_r",
        "type": "int",
        "default": 16,
        "minimum": 1,
        "maximum": 4096,
        "choices": [],
        "only_with": {},
        "meaning": "Rank of the adapter's matrices",
    }
    assert rows["lr_power"]["only_with"] == {"lr_scheduler_type": ["polynomial"]}
    assert rows["lora_bias"]["choices"] == ["none", "all", "lora_only"]
    json.dumps(rows)
