"""`trainyard eval run`, against a small real HTTP server."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.client import watch as watching
from app.cli.client.inference.requests import OF_BASE_MODELS
from app.cli.main import main
from app.schemas.inference import ModelReferenceSchema
from tests.builders.evaluation_answers import COMPARISON, JOB_ID, created, evaluation, job, planned, sent
from tests.doubles.scripted_server import ScriptedServer, failure, success


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    return server


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


@pytest.mark.parametrize(
    ("written", "model"),
    [
        (JOB_ID, {"job_id": JOB_ID}),
        (f"{JOB_ID}@best", {"job_id": JOB_ID, "checkpoint": "best"}),
        (f"{JOB_ID}@ckpt-7", {"job_id": JOB_ID, "checkpoint": "ckpt-7"}),
        ("acme/base", {"model_uri": "acme/base"}),
        ("s3://models/base@2", {"model_uri": "s3://models/base@2"}),
    ],
)
def test_eval_run_measures_a_model(server: ScriptedServer, written: str, model: dict[str, str]) -> None:
    server.script(success(created("job-1"), 201))

    answer = run("eval", "run", written, "-b", "perplexity:s3://data/val.jsonl", "--seed", "7", "--name", "night")

    assert server.seen[0][:2] == ("POST", "/v1/evaluations")
    assert sent(server) == {
        "model": model,
        "benchmarks": [{"name": "perplexity", "dataset": "s3://data/val.jsonl"}],
        "seed": 7,
        "name": "night",
    }
    assert (answer.exit_code, answer.stdout) == (0, "job-1\n")


def test_eval_run_finds_files_beside_it(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("val.jsonl", "vowels.py", "base"):
        (tmp_path / name).touch()
    (tmp_path / "eval.yaml").write_text("benchmarks: [{name: loss, dataset: /srv/val.jsonl}]\nname: of-file\n")
    server.script(success(created("job-1"), 201))

    run(
        *(
            "eval",
            "run",
            "base",
            "--file",
            "eval.yaml",
            "-b",
            "preference:s3://a/b.jsonl",
            "-b",
            "custom:vowels.py:val.jsonl",
        ),
        *("-n", "50", "-p", "max_new_tokens=8", "-p", "answer=completion", "--resource", "gpu_count=2"),
    )

    assert sent(server) == {
        "name": "of-file",
        "model": {"model_uri": f"{tmp_path}/base"},
        "benchmarks": [
            {"name": "loss", "dataset": "/srv/val.jsonl"},
            {
                "name": "preference",
                "dataset": "s3://a/b.jsonl",
                "parameters": {"max_new_tokens": 8, "answer": "completion"},
                "num_samples": 50,
            },
            {
                "name": f"custom:{tmp_path}/vowels.py",
                "dataset": f"{tmp_path}/val.jsonl",
                "parameters": {"max_new_tokens": 8, "answer": "completion"},
                "num_samples": 50,
            },
        ],
        "resource_config": {"gpu_count": 2},
    }


def test_task_of_the_harness_is_named_with_its_directory(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks").mkdir()
    server.script(success(created("job-1"), 201))

    run("eval", "run", JOB_ID, "-b", "lm_eval:arc_easy", "-p", "task_dir=tasks", "-p", "num_fewshot=5")

    parameters = {"task_dir": f"{tmp_path}/tasks", "num_fewshot": 5}
    assert sent(server)["benchmarks"] == [{"name": "lm_eval:arc_easy", "parameters": parameters}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([JOB_ID], "name what to measure"),
        ([JOB_ID, "-n", "5"], "name one"),
        ([JOB_ID, "-p", "top_k=1"], "name one"),
        (["-b", "loss:a"], "name a MODEL"),
        ([f"{JOB_ID}@newest", "-b", "loss:a"], "write JOB@best"),
        ([JOB_ID, "-b", ":a"], "is no benchmark"),
        ([JOB_ID, "-b", "loss:a", "-p", "x"], "write KEY=VALUE"),
        (["acme/base", "-b", "loss:a", "--against", "base"], "name the other model"),
        ([JOB_ID, "-b", "loss:a", "--require", "loss"], "in quotes"),
        ([JOB_ID, "-b", "loss:a", "--require", "loss>1"], "in quotes"),
        ([JOB_ID, "-b", "loss:a", "--require", "loss<=low"], "'low' is no finite number"),
        ([JOB_ID, "-b", "loss:a", "--require", "loss<=inf"], "'inf' is no finite number"),
    ],
)
def test_eval_run_refuses_what_means_nothing(arguments: list[str], said: str, server: ScriptedServer) -> None:
    answer = run("eval", "run", *arguments)

    assert (answer.exit_code, said in answer.stderr, server.seen) == (2, True, [])


def test_eval_run_dry_run_shows_the_plan(server: ScriptedServer) -> None:
    server.script(planned())

    answer = run("eval", "run", JOB_ID, "-b", "loss:a", "--dry-run")

    assert server.seen[0][1] == "/v1/evaluations?dry_run=true&inspect=true"
    assert "n1    yes" in answer.stdout


@pytest.mark.parametrize("named", ["model: {model_uri: a/b}", "job_id: job-1"])
def test_eval_run_takes_one_model(server: ScriptedServer, tmp_path: Path, named: str) -> None:
    (tmp_path / "eval.yaml").write_text(f"benchmarks: [{{name: loss, dataset: /srv/val.jsonl}}]\n{named}\n")
    server.script(success(created("job-1"), 201))

    both = run("eval", "run", "acme/base", "--file", str(tmp_path / "eval.yaml"))
    of_file = run("eval", "run", "--file", str(tmp_path / "eval.yaml"))

    assert (both.exit_code, "leave MODEL or that of the file out" in both.stderr) == (2, True)
    assert (of_file.exit_code, len(server.seen)) == (0, 1)
    assert sent(server)["model"] in ({"model_uri": "a/b"}, {"job_id": "job-1"})


def test_eval_run_dry_run_checks_both_models(server: ScriptedServer) -> None:
    server.script(planned())

    answer = run("eval", "run", "acme/tuned", "-b", "loss:a", "--against", "acme/base", "--dry-run", "--json")

    assert [each[1] for each in server.seen] == ["/v1/evaluations?dry_run=true&inspect=true"] * 2
    assert [sent(server, number)["model"]["model_uri"] for number in (0, 1)] == ["acme/tuned", "acme/base"]
    assert len(json.loads(answer.stdout)["evaluations"]) == 2


def test_eval_run_makes_neither_evaluation_unless_both_can_be(server: ScriptedServer) -> None:
    refused = failure(400, {"code": "INVALID_ARGUMENT", "message": "model.model_uri: lies outside"})
    server.script(planned(), refused)

    answer = run("eval", "run", "acme/tuned", "-b", "loss:a", "--against", "/etc/base")

    assert (answer.exit_code, "lies outside" in answer.stderr) == (1, True)
    assert [each[1] for each in server.seen] == ["/v1/evaluations?dry_run=true"] * 2


def test_eval_run_prints_results_and_comparison_as_json(server: ScriptedServer) -> None:
    plan, done = planned(), job("COMPLETED", kind="evaluation")
    server.script(
        *(plan, plan, success(created("job-1"), 201), success(evaluation()), success(created("job-2"), 201)),
        *(success(done), success(done), success(COMPARISON), success(evaluation())),
    )

    answer = run("eval", "run", "a/b", "-b", "choices:a", "--against", "a/c", "--watch", "--json")

    last = json.loads(answer.stdout.splitlines()[-1])
    assert (answer.exit_code, last["comparison"], len(last["evaluations"])) == (0, COMPARISON, 2)
    assert last["evaluations"][0]["results"]["choices"]["n"] == 200


def test_eval_run_repeats_how_the_base_model_is_loaded(server: ScriptedServer) -> None:
    loading = {"model_kwargs": {"attn_implementation": "eager"}, "source": "hub", "storage_options": {"region": "a"}}
    base = {"model_id": "acme/base", "tokenizer_id": "acme/words", **loading}
    server.script(success(job("COMPLETED", training_config={"base_model": base})), planned())

    run("eval", "run", JOB_ID, "-b", "loss:a", "--against", "base", "--dry-run")

    assert sent(server)["model"] == {"model_uri": "acme/base", "tokenizer_id": "acme/words", **loading}
    own = {"job_id", "checkpoint", "model_uri", "service", "quantization", "credentials"}
    assert set(OF_BASE_MODELS) == set(ModelReferenceSchema().fields) - own


def test_eval_run_says_that_credentials_of_the_base_model_are_to_be_repeated(server: ScriptedServer) -> None:
    base = {"model_id": "s3://models/base", "credentials": {"access_key_id": "***"}}
    server.script(success(job("COMPLETED", training_config={"base_model": base})))

    answer = run("eval", "run", JOB_ID, "-b", "loss:a", "--against", "base")

    assert (answer.exit_code, "credentials of its own" in answer.stderr, len(server.seen)) == (1, True, 1)


def test_eval_run_compares_with_the_base_model(server: ScriptedServer) -> None:
    base = {"model_id": "/srv/base", "dtype": "float32", "revision": None}
    done = {"kind": "evaluation", "total_steps": 1, "current_step": 1}
    server.script(
        success(job("COMPLETED", training_config={"base_model": base}, data_config={"max_seq_length": 64})),
        planned(),
        planned(),
        success(created("job-1"), 201),
        success(evaluation()),
        success(created("job-2"), 201),
        success(job("COMPLETED", **done)),
        success({"model_uri": ""}),
        success(job("COMPLETED", **done)),
        success({"model_uri": ""}),
        success(COMPARISON),
        success(evaluation()),
    )

    answer = run("eval", "run", JOB_ID, "-b", "choices:s3://data/a.jsonl", "--against", "base", "--watch")

    assert sent(server, 5) == {
        "model": {"model_uri": "/srv/base", "dtype": "float32"},
        "benchmarks": [{"name": "choices", "dataset": "s3://data/a.jsonl", "parameters": {"separator": ""}}],
        "data_config": {"max_seq_length": 64},
    }
    assert sent(server, -3) == {"ids": ["job-1", "job-2"], "baseline": "job-2"}
    assert answer.exit_code == 0
    assert "COMPLETED after 1:32, 1 benchmark\n" in answer.stdout
    row = answer.stdout.splitlines()[-1].split()
    assert row == ["choices", "accuracy", "0.615", "0.265", "+0.35", "[+0.27,", "+0.43]", "0.0001", "200", "71"]
    assert "Note: choices: the seeds differ" in answer.stderr


def test_eval_run_of_a_model_from_scratch_has_no_base(server: ScriptedServer) -> None:
    nothing = {"base_model": {"model_id": "none", "from_config": {"model_type": "llama"}}}
    server.script(success(job("COMPLETED", training_config=nothing)))

    answer = run("eval", "run", JOB_ID, "-b", "loss:a", "--against", "base")

    assert (answer.exit_code, "began with random weights" in answer.stderr) == (1, True)


def test_eval_run_watches_and_prints_the_results(server: ScriptedServer) -> None:
    done = job("COMPLETED", kind="evaluation", total_steps=1, current_step=1)
    server.script(success(created("job-1"), 201), success(done), success({"model_uri": ""}), success(evaluation()))

    answer = run("eval", "run", JOB_ID, "-b", "choices:a", "--watch")

    assert answer.exit_code == 0
    assert "choices    accuracy            0.615 ± 0.034  200      3.2" in answer.stdout
    assert "choices    accuracy_by_length  0.6            200      3.2" in answer.stdout


def test_eval_run_exits_with_3_when_an_evaluation_failed(server: ScriptedServer) -> None:
    server.script(success(created("job-1"), 201), success(job("FAILED", kind="evaluation", total_steps=1)))

    assert run("eval", "run", JOB_ID, "-b", "choices:a", "--watch").exit_code == 3


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 4)])
def test_eval_run_exits_with_4_when_the_model_misses_what_is_required(
    server: ScriptedServer, *, passed: bool, code: int
) -> None:
    done = job("COMPLETED", kind="evaluation", total_steps=1, current_step=1)
    bound = {"metric": "choices/accuracy", "min": 0.6, "max": None, "baseline": None, "margin": 0.0}
    verdict = {**bound, "value": 0.615, "baseline_value": None, "passed": passed}
    measured = success(evaluation(passed=passed, verdicts=[verdict]))
    server.script(success(created("job-1"), 201), success(done), success({"model_uri": ""}), measured)

    required = ("--require", "choices/accuracy >= 0.6", "--require", "choices/accuracy_by_length<=9e-1")
    answer = run("eval", "run", JOB_ID, "-b", "choices:a", *required, "--watch")

    assert sent(server, 0)["require"] == [
        {"metric": "choices/accuracy", "min": 0.6},
        {"metric": "choices/accuracy_by_length", "max": 0.9},
    ]
    assert answer.exit_code == code
    assert answer.stdout.splitlines()[-1].split()[-1] == ("yes" if passed else "no")


def test_eval_run_requires_nothing_of_the_model_to_compare_with(server: ScriptedServer) -> None:
    server.script(planned())

    run("eval", "run", "a/b", "-b", "loss:a", "--require", "loss<=2", "--against", "a/c", "--dry-run")

    assert [sent(server, number).get("require") for number in (0, 1)] == [[{"metric": "loss", "max": 2.0}], None]


def test_eval_run_prints_both_ids_and_how_to_compare(server: ScriptedServer) -> None:
    plan = planned()
    server.script(plan, plan, success(created("job-1"), 201), success(evaluation()), success(created("job-2"), 201))

    answer = run("eval", "run", "acme/tuned", "-b", "choices:a", "--against", "acme/base")

    assert answer.stdout == "job-1\njob-2\n"
    assert answer.stderr == "Once they completed: trainyard eval compare job-2 job-1\n"


def test_eval_run_measures_what_a_service_answers(server: ScriptedServer) -> None:
    server.script(planned())

    run("eval", "run", "service:support", "-b", "exact_match:a", "--dry-run")

    assert sent(server)["model"] == {"service": "support"}
