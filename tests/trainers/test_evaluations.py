"""Benchmarks of a tiny real model: samples and figures agree, errors name the record, stopped runs are resumed."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from app.domain.evaluations import answers
from app.domain.text_metrics.bleu import bleu, counts
from tests.trainers.evaluations import Evaluated, evaluate, mean_of_batches, records
from tests.trainers.supervision import TRAINER, FakeSupervisor
from workers.trainers.data import templates
from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.rewards import RewardFailed

PROMPTS = ["def open(path):", "def close(self):", "class Reader:", "def next(self):"]
QUESTIONS = [
    {"prompt": prompt, "answer": ["s", str(n)], "choices": ["a file", "nothing at all", "x"], "right": n % 3}
    for n, prompt in enumerate(PROMPTS)
]
SHORT = {"max_new_tokens": 4}
METRIC = """
def score(records, completions):
    return [len(record["choices"]) + (len(text) > 1000) for record, text in zip(records, completions)]
"""


def measured(
    tmp_path: Path, assets: Path, *benchmarks: Mapping[str, Any], rows: Any = QUESTIONS, **spec: Any
) -> Evaluated:
    """Benchmarks of the tiny model on these rows."""
    given = [{"dataset": 0, **each} for each in benchmarks]
    path = records(tmp_path / "rows.jsonl", rows)
    sources = {"data_paths": (path,), "data_config": {"sources": [{}], "max_seq_length": 64}}
    return evaluate(tmp_path / "run", given, **{"model_path": str(assets / "model"), **sources, **spec})


def files(found: Evaluated) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(found.output.glob("samples-*"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, assets: Path) -> Evaluated:
    """Every kind of benchmark over the same questions."""
    directory = tmp_path_factory.mktemp("whole")
    (directory / "brevity.py").write_text(METRIC)
    benchmarks: Sequence[Mapping[str, Any]] = [
        {"name": "f1", "parameters": SHORT},
        {"name": "bleu", "parameters": SHORT},
        {"name": "exact_match", "num_samples": 2, "parameters": {**SHORT, "temperature": 1.5}},
        {"name": "regex", "parameters": {**SHORT, "pattern": "."}},
        {"name": "json_valid", "parameters": SHORT},
        {"name": "choices", "parameters": {"answer": "right"}},
        {"name": "reward", "parameters": {**SHORT, "reward": "length:4"}},
        {"name": "custom:/data/brevity.py", "parameters": SHORT},
    ]
    found = {"/data/brevity.py": str(directory / "brevity.py")}
    return measured(directory, assets, *benchmarks, benchmark_files=found, inference={"seed": 5})


def test_scores_are_those_of_the_answers(whole: Evaluated) -> None:
    for sample in whole.samples("f1"):
        assert sample.scores["f1"] == answers.f1(sample.answer, sample.document["columns"]["answer"], "squad")
    rows = [counts(sample.answer, sample.document["columns"]["answer"]) for sample in whole.samples("bleu")]
    assert whole.value("bleu", "bleu") == pytest.approx(bleu([sum(column) for column in zip(*rows, strict=True)]))
    assert whole.value("regex", "regex") == 1.0
    assert whole.value("reward", "reward") == 1.0


def test_a_sample_of_the_loss_has_its_sum_and_its_tokens(tmp_path: Path, assets: Path) -> None:
    rows = [{"text": f"def f{n}(): return {'x, ' * n * n}"} for n in range(5)]

    found = measured(tmp_path, assets, {"name": "loss", "parameters": {"batch_size": 2}}, rows=rows)

    assert found.value("loss", "loss") == pytest.approx(mean_of_batches(found, 2), rel=1e-6)
    assert 0 < found.document["benchmarks"]["loss"]["metrics"]["loss"]["stderr"] < found.value("loss", "loss")


def test_a_custom_metric_gets_records_and_completions(whole: Evaluated) -> None:
    assert [sample.scores for sample in whole.samples("custom-brevity")] == [{"score": 3.0}] * len(PROMPTS)


def test_the_likeliest_choice_is_the_answer(whole: Evaluated) -> None:
    for sample in whole.samples("choices"):
        choices, logprobs = sample.document["columns"]["choices"], sample.more["logprobs"]
        likeliest = max(range(3), key=logprobs.__getitem__)
        assert sample.answer == choices[likeliest]
        assert sample.scores["accuracy"] == float(likeliest == sample.document["columns"]["right"])


def test_results_have_values_errors_and_sizes_also_in_the_harness_form(whole: Evaluated) -> None:
    found = whole.document["benchmarks"]["exact_match"]

    assert (found["n"], found["name"]) == (2, "exact_match")
    assert found["tokens"] > 0
    assert whole.document["results"]["exact_match"]["exact_match,none"] == found["metrics"]["exact_match"]["value"]
    assert whole.document["config"]["seed"] == 5
    assert whole.result.step == 8
    assert whole.result.final_metrics["bench/custom-brevity/score"] == 3.0


def test_only_results_and_samples_are_left(whole: Evaluated) -> None:
    names = {path.name for path in whole.output.iterdir()}

    assert names == {"results.json", *(f"samples-{label}.jsonl" for label in whole.document["benchmarks"])}


def test_a_resumed_evaluation_measures_only_what_is_missing_and_gives_the_same(
    tmp_path: Path, assets: Path, whole: Evaluated
) -> None:
    benchmarks: list[Mapping[str, Any]] = [
        {"name": "exact_match", "num_samples": 2, "parameters": {**SHORT, "temperature": 1.5}},
        {"name": "f1", "parameters": SHORT},
    ]
    first = measured(tmp_path / "first", assets, benchmarks[0], inference={"seed": 5})
    saved = next((tmp_path / "first" / "run" / "checkpoints").iterdir())
    output = tmp_path / "second" / "run" / "output"
    output.mkdir(parents=True)
    for path in saved.glob("*-*"):
        shutil.copy(path, output)
    # What is finished is not read again.
    position = json.loads((saved / "manifest.json").read_text())["data_position"]

    second = measured(tmp_path / "second", assets, *benchmarks, finished_shards=(0,), inference={"seed": 5})

    assert (position["shard"], position["records"]) == (0, 2)
    assert second.document["benchmarks"]["exact_match"] == first.document["benchmarks"]["exact_match"]
    assert files(second) == {name: files(whole)[name] for name in files(second)}
    assert second.result.step == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("benchmark", "row", "message"),
    [
        ({"name": "f1"}, {"prompt": "p"}, r"benchmark f1: record 1 .*rows.jsonl line 2\): it has no column answer"),
        ({"name": "f1"}, {"prompt": "p", "answer": {}}, r"record 1 .*column answer must be a text, a number, or"),
        ({"name": "f1"}, {"answer": "a"}, r"benchmark f1: record 1 .* has neither prompt, nor messages"),
        ({"name": "regex"}, {"prompt": "p", "answer": "("}, r"benchmark regex: record 1 .*RE2"),
        ({"name": "choices"}, {"prompt": "p", "choices": ["a"], "answer": 0}, r"record 1 .*list of two or more texts"),
        ({"name": "choices"}, {"prompt": "p", "choices": ["a", "b"], "answer": 2}, r"record 1 .*from 0 to 1"),
        ({"name": "f1"}, {"prompt": "p " * 5000, "answer": "a"}, r"benchmark f1: record 1 .*CONTEXT_TOO_LONG"),
    ],
)
def test_a_record_that_cannot_be_measured_is_named(
    tmp_path: Path, assets: Path, benchmark: dict[str, Any], row: dict[str, Any], message: str
) -> None:
    first = {"prompt": "p", "answer": "a", "choices": ["a", "b"]}

    with pytest.raises(DataInvalid, match=message):
        measured(
            tmp_path,
            assets,
            {**benchmark, "parameters": SHORT if benchmark["name"] != "choices" else {}},
            rows=[first, row],
        )


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("", InvalidConfig, r"metric.py has no function score\(records, completions\)"),
        ("1 / 0", RewardFailed, "metric.py can't be loaded: ZeroDivisionError"),
        ("def score(records, completions): return [0]", RewardFailed, "returned 1 numbers for 4 completions"),
        ("def score(records, completions): return ['x'] * 4", RewardFailed, "returned 'x' for record 0"),
        (
            "def score(records, completions): return [1 / (r['right'] - 2) for r in records]",
            RewardFailed,
            r"failed on record 2 .*line 3\): ZeroDivisionError",
        ),
    ],
)
def test_a_metric_that_fails_names_the_record(
    tmp_path: Path, assets: Path, code: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "metric.py").write_text(code)

    with pytest.raises(error, match=message):
        measured(tmp_path, assets, {"name": f"custom:{tmp_path}/metric.py", "parameters": SHORT})


def test_a_benchmark_that_does_not_exist_ends_the_job_before_it_loads_a_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"there is no benchmark 'bleurt' .*; known: loss"):
        measured(tmp_path, tmp_path, {"name": "bleurt"})


def test_preferences_are_judged_by_likelihood(tmp_path: Path, assets: Path) -> None:
    rows = [{"prompt": "def open(", "chosen": "path):", "rejected": "path): " + "qzx " * 6}]

    found = measured(tmp_path, assets, {"name": "preference"}, rows=rows)

    (sample,) = found.samples("preference")
    assert sample.answer == "chosen"
    assert sample.scores == {"accuracy": 1.0, "margin": sample.more["chosen"] - sample.more["rejected"]}
    assert found.document["benchmarks"]["preference"]["metrics"]["accuracy"] == {"value": 1.0, "stderr": None}


@pytest.mark.long
def test_a_stop_drops_the_benchmark_in_work_and_keeps_finished_ones(tmp_path: Path, assets: Path) -> None:
    quick = {"name": "json_valid", "dataset": 0, "num_samples": 1, "parameters": SHORT}
    long = {"name": "f1", "dataset": 0, "parameters": {"max_new_tokens": 400}}
    spec = {
        "run_dir": str(tmp_path / "run"),
        "framework": "TRANSFORMERS",
        "training_type": "EVALUATION",
        "model_path": str(assets / "model"),
        "data_paths": [records(tmp_path / "rows.jsonl", QUESTIONS * 20)],
        "data_config": {"sources": [{}]},
        "device_type": "cpu",
        "world_size": 1,
        "threads_per_rank": 1,
        "inference": {"benchmarks": [quick, long]},
    }
    stop = ((lambda message: message["type"] == "checkpoint"), {"type": "requeue", "save_checkpoint": True})

    ended = FakeSupervisor(tmp_path / "run", tmp_path / "storage", [stop]).run(TRAINER, spec)

    assert ended.exit_codes == [0]
    assert (ended.result["stopped"], ended.result["step"]) == ("requeue", 1)
    assert set(ended.phases) == {"EVALUATING"}
    (stored,) = ended.checkpoints
    assert sorted(path.name for path in stored.iterdir()) == [
        "figures-00000.json",
        "manifest.json",
        "samples-json_valid.jsonl",
    ]


def reward_model(directory: Path, assets: Path) -> Path:
    config = AutoConfig.from_pretrained(assets / "model", num_labels=1)
    torch.manual_seed(1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(directory)
    AutoTokenizer.from_pretrained(assets / "model").save_pretrained(directory)
    return directory


def test_a_reward_model_judges_answers_as_in_trainings(tmp_path: Path, assets: Path) -> None:
    judge = reward_model(tmp_path / "judge", assets)
    chat = [{"role": "user", "content": "open"}]
    judged = {"name": "reward", "parameters": {**SHORT, "reward_model_id": "judge"}}

    found = [
        measured(tmp_path / str(n), assets, judged, rows=rows, reward_model_path=str(judge))
        for n, rows in enumerate((QUESTIONS[:2], [{"prompt": chat}]))
    ]

    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(judge), AutoTokenizer.from_pretrained(judge)
    templates.ensure(tokenizer)
    texts = [sample.document["prompt"] + sample.answer for sample in found[0].samples("reward")]
    (answered,) = found[1].samples("reward")
    messages = [*chat, {"role": "assistant", "content": answered.answer}]
    texts.append(tokenizer.apply_chat_template(messages, tokenize=False))
    ids = [tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"] for text in texts]
    expected = [model(input_ids=each).logits.item() for each in ids]
    scores = [sample.scores["reward"] for each in found for sample in each.samples("reward")]
    assert scores == pytest.approx(expected, rel=1e-5)
    with pytest.raises(InvalidConfig, match="reward_model_id: the model in model has no head"):
        measured(tmp_path / "text", assets, judged, reward_model_path=str(assets / "model"))


def test_a_reward_model_judges_preferences_by_its_scores(tmp_path: Path, assets: Path) -> None:
    model = reward_model(tmp_path / "judge", assets)
    rows = [{"prompt": "def open(", "chosen": "path):", "rejected": "x"}] * 2

    found = measured(tmp_path, assets, {"name": "preference"}, rows=rows, model_path=str(model))

    (sample, _) = found.samples("preference")
    assert sample.scores["margin"] == pytest.approx(sample.more["chosen"] - sample.more["rejected"])
    assert found.value("preference", "accuracy") == sample.scores["accuracy"]
    with pytest.raises(InvalidConfig, match="sequence classifier"):
        measured(tmp_path / "text", assets, {"name": "f1"}, model_path=str(model))
