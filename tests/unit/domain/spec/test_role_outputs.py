"""Outputs of roles that may be on another node than rank 0: which ones a submission warns of."""

from typing import Any

import pytest

from app.domain.spec.rules.role_outputs import unpublished
from tests.builders.submitted import spec_of
from tests.unit.domain.spec.test_roles import document

TRAINER: dict[str, Any] = {"role": "trainer"}
WRITER: dict[str, Any] = {
    "role": "writer",
    "training_config": {"custom_command": ["bash", "-c", "run '--out=$(TRAINYARD_OUTPUT_DIR)/a' > b"]},
}
BESIDE = {"affinity": [{"role": "trainer", "where": "same_node"}]}
BESIDE_B = {"affinity": [{"role": "b", "where": "same_node"}]}
B: dict[str, Any] = {"role": "b", "training_config": {}}
TOGETHER = {"affinity": [{"role": "trainer", "where": "same_node"}], "count": 2}


def fields(*tasks: dict[str, Any], nodes: int = 2, **changes: Any) -> dict[str, str]:
    asked = {"output_config": {"output_path": "s3://results/here"}, **changes}
    return dict(unpublished(spec_of(document(*tasks, **asked)).document, nodes=nodes))


def test_the_output_and_the_role_are_named() -> None:
    (field, why), *others = fields(TRAINER, WRITER).items()

    assert (field, others) == ("tasks.1", [])
    assert why.startswith("of --out=$(TRAINYARD_OUTPUT_DIR)/a only files on rank 0's node are published")
    assert "writer may run on another" in why


def test_the_first_role_is_told_of_its_other_instances() -> None:
    why = fields({**WRITER, "count": 2}, TRAINER)["tasks.0"]

    assert "its other instances may run on another" in why
    assert "let its first instance write them" in why


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        ([WRITER, TRAINER], []),  # the only instance of the first role has rank 0
        ([{**WRITER, "count": 2}, TRAINER], ["tasks.0"]),
        ([TRAINER, {**WRITER, **BESIDE}], []),
        ([{**TRAINER, "count": 2}, {**WRITER, **BESIDE}], ["tasks.1"]),
        ([{**TRAINER, **TOGETHER}, {**WRITER, **BESIDE}], []),
        ([TRAINER, {**WRITER, **BESIDE_B}, {**B, **BESIDE, "count": 2}], []),  # beside one that is beside rank 0
        ([{**TRAINER, **BESIDE_B, "count": 2}, {**WRITER, **BESIDE_B}, B], []),  # all beside a single one
        ([{**TRAINER, **BESIDE_B, "count": 2}, {**WRITER, **BESIDE}, {**B, "count": 2}], ["tasks.1"]),
        ([TRAINER, {**WRITER, "affinity": [{**BESIDE["affinity"][0], "required": False}]}], ["tasks.1"]),
        ([TRAINER, {"role": "b", "training_config": {"environment": {"OUT": "$(TRAINYARD_OUTPUT_DIR)"}}}], ["tasks.1"]),
        ([TRAINER, {"role": "b", "training_config": {"custom_command": ["a", "$TRAINYARD_OUTPUT_DIR/.notes"]}}], []),
    ],
)
def test_only_what_may_be_elsewhere_is_named(tasks: list[dict[str, Any]], named: list[str]) -> None:
    assert list(fields(*tasks)) == named
    assert fields(*tasks, nodes=1) == fields(*tasks, output_config={}) == {}
