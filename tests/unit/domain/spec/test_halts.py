"""What a document says of its halts and extra checkpoints, and which documents may say it."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.spec.model import HaltAt, JobDocument
from app.domain.spec.roles import JobRole
from app.domain.spec.rules.halts import halts_can_be_reached
from app.schemas.jobs import SubmitJobSchema
from tests.builders.submitted import GOOD, changed, custom, refusal, spec_of

HALTS, SAVES = "training_config.halt_at", "output_config.checkpoint.save_at"
CONFIG = "training_config.framework.config"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, None),
        ({"at": [100, 300]}, HaltAt(unit="steps", at=(100, 300))),
        ({"unit": "epochs", "at": [1]}, HaltAt(unit="epochs", at=(1,))),
    ],
)
def test_halts_count_steps_unless_the_document_says_epochs(given: Any, meant: HaltAt | None) -> None:
    assert JobDocument.from_json(changed((HALTS, given))).training_config.halt_at == meant


def test_documents_without_either_have_none() -> None:
    document = JobDocument.from_json(changed())

    assert (document.training_config.halt_at, document.output_config.checkpoint.save_at) == (None, ())


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"at": []}, f"{HALTS}.at", "at least one"),
        ({"at": [2, 1]}, f"{HALTS}.at", "1 follows 2"),
        ({"at": [2, 2]}, f"{HALTS}.at", "2 follows 2"),
        ({"at": [0, 2]}, f"{HALTS}.at", "not above 0"),
        ({"at": list(range(1, 1002))}, f"{HALTS}.at", "at most 1000 amounts; this has 1001"),
    ],
)
def test_halts_that_are_no_ascending_amounts_are_refused(given: dict[str, Any], field: str, said: str) -> None:
    refused = refusal(changed((HALTS, given)))

    assert (refused.field, said in refused.message) == (field, True)


def test_checkpoints_at_steps_have_to_ascend() -> None:
    refused = refusal(changed((SAVES, [5, 4])))

    assert (refused.field, "4 follows 5" in refused.message) == (SAVES, True)


def test_halts_are_not_for_jobs_that_resume_from_their_best_checkpoint() -> None:
    best = (("output_config.checkpoint", {"resume_from_best": True}), ("data_config.validation_split", 0.1))

    refused = refusal(changed(*best, (HALTS, {"at": [2]})))

    assert (refused.field, "same halt" in refused.message) == ("output_config.checkpoint.resume_from_best", True)


def test_halts_from_the_end_of_the_training_on_are_no_error() -> None:
    steps = ("training_config.hyperparameters", {"max_steps": "4"})

    accepted = spec_of(changed(steps, (HALTS, {"at": [2, 4, 9]}))).document

    assert accepted.training_config.halt_at == HaltAt(at=(2, 4, 9))


def test_a_custom_script_has_halts_and_may_read_when_to_save() -> None:
    accepted = spec_of(custom((HALTS, {"at": [2]}), (SAVES, [2, 4]))).document

    assert accepted.training_config.halt_at == HaltAt(at=(2,))
    assert accepted.output_config.checkpoint.save_at == (2, 4)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        (((HALTS, {"unit": "epochs", "at": [2]}),), f"{HALTS}.unit", "name steps"),
        (((CONFIG, {"checkpoint_glob": "*.pt"}),), f"{CONFIG}.checkpoint_glob", "save by the hooks and leave this out"),
        (((CONFIG, {"metric.loss": "loss=([0-9.]+)"}),), f"{CONFIG}.metric.loss", "or leave halt_at out"),
    ],
)
def test_a_script_that_can_not_halt_by_the_hooks_is_refused(changes: Any, field: str, said: str) -> None:
    refused = refusal(custom((HALTS, {"at": [2]}), *changes))

    assert (refused.field, said in refused.message) == (field, True)


def test_scripts_of_roles_have_no_halts() -> None:
    document = JobDocument.from_json(custom((HALTS, {"at": [2]})))

    with pytest.raises(BadSpec, match="no steps in common") as caught:
        halts_can_be_reached(replace(document, tasks=(JobRole(),)))

    assert caught.value.field == "tasks"


def test_streamed_data_has_no_halts_by_epochs() -> None:
    streamed = (("data_config.streaming", True), ("training_config.hyperparameters", {"max_steps": "4"}))

    refused = refusal(changed(*streamed, (HALTS, {"unit": "epochs", "at": [1]})))

    assert (refused.field, "count steps" in refused.message) == (f"{HALTS}.unit", True)
    assert spec_of(changed(*streamed, (HALTS, {"at": [1]}))).document.training_config.halt_at == HaltAt(at=(1,))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (HALTS, {"at": []}),
        (HALTS, {"at": [0]}),
        (HALTS, {"at": ["2"]}),
        (HALTS, {"at": [2.5]}),
        (HALTS, {"at": list(range(1, 1002))}),
        (HALTS, {"unit": "tokens", "at": [2]}),
        (HALTS, {"unit": "steps"}),
        (SAVES, [-1]),
    ],
)
def test_shape_of_both_is_checked(path: str, value: Any) -> None:
    assert SubmitJobSchema().validate(changed((path, value))) != {}
    assert SubmitJobSchema().validate(GOOD) == {}
