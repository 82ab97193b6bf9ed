"""The benchmark `reward` by a reward model: what it refuses, before an answer is generated where that is possible."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from tests.builders.engine_specs import engine_spec
from workers.trainers.failures import DataInvalid
from workers.trainers.inference.engine.interface import never
from workers.trainers.inference.evaluation import reward_model
from workers.trainers.inference.evaluation.dataset import Dataset
from workers.trainers.inference.evaluation.reward_model import RewardModelScorer
from workers.trainers.inference.evaluation.scoring import AnsweredRecord
from workers.trainers.inference.inputs import InputRow

STRICT = "{% for m in messages %}{{ m.content if m.role != 'system' else raise_exception('no system') }}{% endfor %}"
SYSTEM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "open"}]


class Named(Dataset):
    """Of no file: it only names records in errors."""

    def __init__(self) -> None:
        self.benchmark: Any = SimpleNamespace(name="reward")


@pytest.fixture
def make_scorer(
    tokenizer: PreTrainedTokenizerBase, save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RewardModelScorer]:
    directory = save_model("judge", of=AutoModelForSequenceClassification, num_labels=1, max_position_embeddings=32)

    def make(*, broken: bool = False, **special: Any) -> RewardModelScorer:
        model = AutoModelForSequenceClassification.from_pretrained(directory)
        if broken:
            torch.nn.init.constant_(model.score.weight, float("nan"))
        own = type(tokenizer).from_pretrained(directory)
        own.chat_template = STRICT
        for name, value in special.items():
            setattr(own, name, value)
        monkeypatch.setattr(reward_model, "load_reward_model", lambda _: (model, own))
        task: Any = SimpleNamespace(spec=engine_spec("", reward_model_path=str(directory)), interrupted=never)
        return RewardModelScorer(task, Named())

    return make


def located(*prompts: object) -> list[tuple[InputRow, dict[str, Any]]]:
    return [(InputRow(n, f"a.jsonl line {n + 1}", {}), {"prompt": prompt}) for n, prompt in enumerate(prompts)]


def answered(*prompts: object) -> list[AnsweredRecord]:
    completion: Any = SimpleNamespace(text="no")
    return [AnsweredRecord(row, record, completion) for row, record in located(*prompts)]


@pytest.mark.parametrize(
    ("prompt", "rule"),
    [
        (SYSTEM, "can't be tokenized: no system"),
        ("open the file, " * 20, r"reward_model_id: .*the model's context holds 32"),
    ],
)
def test_a_prompt_that_it_can_not_read_is_named_before_any_answer(make_scorer, prompt, rule):
    with pytest.raises(DataInvalid, match=rf"benchmark reward: record 1 \(a\.jsonl line 2\): .*{rule}"):
        make_scorer().check(located("open", prompt))


def test_an_answer_that_it_can_not_read_is_named(make_scorer):
    with pytest.raises(DataInvalid, match=r"record 1 .*no system"):
        make_scorer()(answered("open", SYSTEM))


def test_a_score_must_be_finite(make_scorer):
    with pytest.raises(DataInvalid, match=r"record 0 .*score is not a finite number"):
        make_scorer(broken=True)(answered("open"))


def test_any_special_token_pads(make_scorer):
    plain = [each.scores["reward"] for each in make_scorer()(answered("open", "def get_name(self):"))]

    scorer = make_scorer(pad_token=None, eos_token=None, unk_token="<pad>")

    assert [each.scores["reward"] for each in scorer(answered("open", "def get_name(self):"))] == plain
