"""Which metric stands for the training loss."""

import pytest

from app.domain.loss_names import loss_of


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], None),
        (["lr", "accuracy"], None),
        (["train_loss", "loss"], "loss"),
        (["eval_loss", "my_loss"], "my_loss"),
        (["eval_loss", "lr"], "eval_loss"),
        (["policy/Loss", "aux_loss"], "aux_loss"),
    ],
)
def test_the_training_loss_comes_before_those_of_other_data(names: list[str], expected: str | None):
    assert loss_of(names) == expected
