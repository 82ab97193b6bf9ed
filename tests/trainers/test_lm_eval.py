"""Tasks of EleutherAI's harness: the figures of its own class for transformers, samples, and errors with a way out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.registry import HIGHER_IS_BETTER_REGISTRY
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from app.domain.evaluations.catalog import find
from app.domain.evaluations.open_metrics import metric_of, of_samples
from app.domain.evaluations.statistics import estimate
from tests.trainers.evaluations import Evaluated, evaluate, records
from workers.trainers.failures import DataNotFound, InvalidConfig
from workers.trainers.inference.evaluation.harness.figures import name_of
from workers.trainers.inference.evaluation.harness.task_files import TaskFailed

ROWS = [
    {"question": f"def f{n}(path):", "choices": ["return path", "nothing at all", "x"], "right": n % 3, "text": text}
    for n, text in enumerate(("s", "self.name", "return the name of a file that was read\n" * 40))
]
COMMON = """
dataset_path: json
dataset_kwargs:
  data_files: {test: data/rows.jsonl}
test_split: test
"""
TASKS = {
    "picks": """
output_type: multiple_choice
num_fewshot: 1
doc_to_text: "{{question}}"
doc_to_target: right
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "rolls": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
""",
    "follows": """
output_type: loglikelihood
doc_to_text: "{{question}}"
doc_to_target: " {{choices[0]}}"
metric_list: [{metric: perplexity}, {metric: acc}]
""",
    "writes": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{text[:3]}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}, {metric: chrf}]
filter_list:
  - {name: first, filter: [{function: regex, regex_pattern: "([a-z]+)"}, {function: take_first}]}
  - {name: none, filter: [{function: take_first}]}
""",
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tasks")
    records(directory / "data/rows.jsonl", ROWS)
    for name, text in TASKS.items():
        (directory / f"{name}.yaml").write_text(f"task: {name}{COMMON}{text}")
    (directory / "fails.yaml").write_text(f"task: fails{COMMON}{TASKS['picks']}process_docs: !function code.fails\n")
    (directory / "far.yaml").write_text(f"task: far{TASKS['picks']}dataset_path: someone/elsewhere\ntest_split: test\n")
    (directory / "broken.yaml").write_text("task: broken\ninclude: missing.yaml\n")
    (directory / "both.yaml").write_text("group: both\ntask: [picks, rolls]\n")
    (directory / "code.py").write_text("def fails(docs):\n    raise KeyError('no column')\n")
    return directory


def measured(run_dir: Path, assets: Path, tasks: Path, *names: str, **parameters: Any) -> Evaluated:
    given = [{"name": f"lm_eval:{name}", "parameters": {"task_dir": "/tasks", **parameters}} for name in names]
    where: dict[str, Any] = {"model_path": str(assets / "model"), "benchmark_files": {"/tasks": str(tasks)}}
    return evaluate(run_dir, given, **where)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, assets: Path, tasks: Path) -> Evaluated:
    return measured(tmp_path_factory.mktemp("run"), assets, tasks, *TASKS)


def test_figures_are_those_of_the_harness_alone(
    ours: Evaluated, assets: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tasks)  # from where the harness finds relative paths
    model = HFLM(pretrained=str(assets / "model"), device="cpu", dtype="float32", batch_size=2)
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    found: Mapping[str, Any] = simple_evaluate(model, tasks=list(TASKS), task_manager=manager, bootstrap_iters=0)

    for name in TASKS:
        theirs = {key: value for key, value in found["results"][name].items() if "," in key and "_stderr" not in key}
        mine = ours.document["results"][f"lm_eval-{name}"]
        assert {key: mine[key] for key in theirs} == pytest.approx(theirs, rel=1e-5)
        samples = {each["doc_id"]: each for each in found["samples"][name]}
        assert [(each.doc_hash, each.prompt_hash, each.target_hash) for each in ours.samples(f"lm_eval-{name}")] == [
            tuple(samples[index][f"{of}_hash"] for of in ("doc", "prompt", "target")) for index in sorted(samples)
        ]


def test_metrics_are_better_as_the_harness_says() -> None:
    ours = {name: metric_of(find("lm_eval:x"), name_of(name)) for name in HIGHER_IS_BETTER_REGISTRY if name != "bypass"}

    found = {name: each.larger_is_better if each is not None else None for name, each in ours.items()}
    assert found == {name: HIGHER_IS_BETTER_REGISTRY[name] for name in ours}


def test_samples_add_up_to_the_figures(ours: Evaluated) -> None:
    for label, names in {
        "lm_eval-picks": ("acc", "acc_norm"),
        "lm_eval-rolls": ("word_perplexity", "bits_per_byte"),
        "lm_eval-follows": ("perplexity", "acc"),
        "lm_eval-writes": ("exact_match", "exact_match.first"),
    }.items():
        samples = ours.samples(label)
        for name in names:
            metric = metric_of(find("lm_eval:x"), name)
            assert metric is not None
            added = estimate(of_samples(metric, samples), [each.scores[name] for each in samples])
            shown = ours.document["benchmarks"][label]["metrics"][name]
            assert (shown["value"], shown["stderr"]) == pytest.approx((added.value, added.stderr), rel=1e-9)
    assert ours.document["benchmarks"]["lm_eval-writes"]["metrics"]["chrf"]["stderr"] >= 0
    assert ours.document["benchmarks"]["lm_eval-picks"]["tokens"] > 0


def test_prompts_are_chats_of_as_many_examples_where_that_is_asked(tmp_path: Path, assets: Path, tasks: Path) -> None:
    chat = {"apply_chat_template": True, "system_instruction": "Answer.", "num_fewshot": 2}

    found = measured(tmp_path, assets, tasks, "picks", **chat)

    plain = measured(tmp_path / "plain", assets, tasks, "picks")
    assert (
        found.document["benchmarks"]["lm_eval-picks"]["tokens"]
        > plain.document["benchmarks"]["lm_eval-picks"]["tokens"]
    )
    assert json.dumps(found.document["config"]["benchmarks"][0]["parameters"]["num_fewshot"]) == "2"


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("hellaswag", InvalidConfig, r"tasks there: .*picks.* copy its files there; .*data_files"),
        ("far", DataNotFound, r"someone/elsewhere.* is not on this node .*parameters\.task_dir.*data_files"),
        ("both", InvalidConfig, "a group of several tasks"),
        ("fails", TaskFailed, "no column"),
        ("broken", TaskFailed, r"broken\.yaml can't be loaded: .*missing\.yaml"),
    ],
)
def test_a_task_that_can_not_be_made_says_what_to_do(
    tmp_path: Path,
    assets: Path,
    tasks: Path,
    name: str,
    error: type[Exception],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)  # ranks have it from their environment
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(error, match=said):
        measured(tmp_path, assets, tasks, name)
