"""The trainer of docs/how-to/adding-a-trainer.md, registered as that page says it, for as long as a test wants it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.domain.spec.hyperparameters import tables
from app.domain.spec.hyperparameters.parsing import TABLES
from tests.builders.example_jobs import ROOT
from workers.trainers.registry import TRAINERS

PAIR = ("HF_TRAINER", "NORM_TUNING")
FOLDER = ROOT / "examples" / "trainer"
CODE, DOCUMENT = FOLDER / "norm_tuning.py", FOLDER / "norm-tuning.json"
LINE = "examples.trainer.norm_tuning:NormTrainer"
ROW = (tables._learning_rate(1e-3), *tables._COMMON, *tables._REGULARIZATION, *tables._SUPERVISED)


@contextmanager
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(TRAINERS, PAIR, LINE)
        patched.setitem(TABLES, PAIR, ROW)
        yield
