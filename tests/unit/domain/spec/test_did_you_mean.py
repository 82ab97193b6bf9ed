"""A value that is none of the accepted ones is refused with their list, and with the one that is probably meant."""

from typing import Any

import pytest
from marshmallow import ValidationError

from app.domain.errors import BadSpec
from app.domain.spec.model import JobDocument
from app.domain.spec.rules.model import DTYPES, dtype_is_known, source_fits_the_model
from app.domain.spec.rules.output import EXPORT_FORMATS
from app.domain.suggestions import did_you_mean
from app.schemas.spec.training_config import FRAMEWORKS, TRAINING_TYPES
from app.schemas.strict_fields import Choice
from tests.builders.factories import make_document


@pytest.mark.parametrize(
    ("said", "accepted", "meant"),
    [
        ("huggingface", ("hub", "local"), "hub"),
        ("HuggingFace", FRAMEWORKS, "HF_TRAINER"),
        ("gpu", ("auto", "cpu", "cuda"), "cuda"),
        ("CUDA", ("auto", "cpu", "cuda"), "cuda"),
        ("sft", TRAINING_TYPES, "SFT"),
        ("continued-pretrain", TRAINING_TYPES, "CONTINUED_PRETRAIN"),
        ("bf16", DTYPES, "bfloat16"),
        ("safetensor", EXPORT_FORMATS, "safetensors"),
        ("DEEPSPED", FRAMEWORKS, "DEEPSPEED"),
    ],
)
def test_near_word_and_known_alias_are_named(said: str, accepted: tuple[str, ...], meant: str) -> None:
    assert did_you_mean(said, accepted) == f" (did you mean {meant}?)"


@pytest.mark.parametrize("said", ["", "banana", "huggingface", "x" * 10_000])
def test_word_that_is_near_none_names_none(said: str) -> None:
    assert did_you_mean(said, TRAINING_TYPES) == ""


def test_choice_lists_what_is_accepted() -> None:
    choice = Choice(("auto", "cpu", "cuda"))

    with pytest.raises(ValidationError) as near:
        choice.deserialize("gpu")
    with pytest.raises(ValidationError) as far:
        choice.deserialize("banana")

    assert near.value.messages == ["must be one of auto, cpu, cuda (did you mean cuda?)"]
    assert far.value.messages == ["must be one of auto, cpu, cuda"]


@pytest.mark.parametrize(
    ("rule", "model", "message"),
    [
        (
            source_fits_the_model,
            {"model_id": "org/model", "source": "huggingface"},
            "source is 'huggingface', but model_id names a model of source hub or local (did you mean hub?); leave ",
        ),
        (dtype_is_known, {"dtype": "bf16"}, "unknown dtype 'bf16'; known: "),
    ],
)
def test_rule_names_what_is_accepted_and_what_is_meant(rule: Any, model: dict[str, Any], message: str) -> None:
    document = make_document(training_config={"base_model": {"model_id": "/srv/models/tiny", **model}})

    with pytest.raises(BadSpec) as refused:
        rule(JobDocument.from_json(document))

    assert refused.value.message.startswith(message)
    assert "(did you mean " in refused.value.message
