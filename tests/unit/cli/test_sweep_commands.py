"""`trainyard sweep`, against a small real HTTP server."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.client import watch as watching
from app.cli.client.sweeps import watch as sweep_watching
from app.cli.main import main
from tests.builders.sweep_answers import DOCUMENT, SWEEP_ID, page, report, sweep, trial
from tests.doubles.scripted_server import ScriptedServer, drop, failure, success

CREATED = {"sweep_id": SWEEP_ID, "status": "PENDING", "message": "", "warnings": ["job.x: no effect"]}
PLAN = {
    "valid": True,
    "grid_size": None,
    "device_hours_at_most": 2.5,
    "rungs": [{"rung": 100, "trials": 60.0}, {"rung": 300, "trials": 20.0}],
    "suggestions": [{"learning_rate": 1e-4}],
    "trunks": [{"trial": 4, "forked_from": 1, "step": 80}],
    "warnings": ["no node is free"],
}


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    return server


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "sweep.json").write_text(json.dumps(DOCUMENT))
    return str(tmp_path / "sweep.json")


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, ["sweep", *arguments], **options)


def paths(server: ScriptedServer) -> list[str]:
    return [path for _, path, *_ in server.seen]


def test_submit_sends_the_document_and_prints_the_id(server: ScriptedServer, file: str) -> None:
    server.script(success(CREATED, 201))

    answer = run("submit", file, "--project", "red")

    method, path, headers, body = server.seen[0]
    assert (method, path, json.loads(body)) == ("POST", "/v1/sweeps", DOCUMENT)
    assert (headers["X-Project"], bool(headers["Idempotency-Key"])) == ("red", True)
    assert (answer.exit_code, answer.stdout) == (0, f"{SWEEP_ID}\n")
    assert answer.stderr == f"Warning: job.x: no effect\nFollow it with: trainyard sweep watch {SWEEP_ID}\n"


def test_submit_reads_yaml_from_standard_input_and_prints_json(server: ScriptedServer) -> None:
    server.script(success(CREATED, 201))

    answer = run("submit", "-", "--json", input="name: n\nparameters: {a: 1}\n")

    assert json.loads(server.seen[0][3]) == {"name": "n", "parameters": {"a": 1}}
    assert json.loads(answer.stdout) == CREATED


def test_dry_run_shows_rungs_and_first_values(server: ScriptedServer, file: str) -> None:
    server.script(success(PLAN))

    for_people, for_programs = run("submit", file, "--dry-run"), run("submit", file, "--dry-run", "--json")

    assert paths(server) == ["/v1/sweeps?dry_run=true"] * 2
    assert "300   20" in for_people.stdout
    assert "learning_rate 1e-4" in for_people.stdout
    words = [line.split() for line in for_people.stdout.splitlines()]
    assert ["4", "trial", "1", "80"] in words
    assert ["device", "hours", "at", "most", "2.5"] in words
    assert for_people.stderr == "Warning: no node is free\n"
    assert json.loads(for_programs.stdout) == PLAN


def test_submit_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("[1]")
    (tmp_path / "broken").write_text("{")

    assert "see docs/reference/sweeps.md" in run("submit", str(tmp_path / "list")).stderr
    assert "is not a sweep document" in run("submit", str(tmp_path / "broken")).stderr


def test_a_file_of_weights_and_biases_is_translated(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(success(CREATED, 201))
    text = "method: random\nmetric: {name: loss}\nparameters: {lr: {min: 0.1, max: 0.2}}\nrun_cap: 3\nproject: p\n"
    (tmp_path / "wb.yaml").write_text(text)
    (tmp_path / "job.yaml").write_text("name: a\ntraining_config: {framework: {type: HF_TRAINER}}\n")

    answer = run("submit", str(tmp_path / "wb.yaml"), "--wandb", "--job", str(tmp_path / "job.yaml"))

    sent = json.loads(server.seen[0][3])
    assert (sent["name"], sent["budget"]["max_trials"]) == ("a", 3)
    assert sent["parameters"] == {"lr": {"type": "double", "min": 0.1, "max": 0.2}}
    assert answer.stderr.startswith("Warning: project: has no effect here\n")


def test_what_has_no_translation_is_an_error_of_the_file(file: str, tmp_path: Path) -> None:
    (tmp_path / "wb.yaml").write_text("method: x\nmetric: {name: a}\nparameters: {}\n")

    answer = run("submit", str(tmp_path / "wb.yaml"), "--wandb", "--job", file)

    assert answer.exit_code == 1
    assert "wb.yaml: method: 'x' must be one of grid, random, bayes" in answer.stderr


def test_wandb_and_job_belong_together(file: str) -> None:
    alone, without = run("submit", file, "--wandb"), run("submit", file, "--job", file)

    assert (alone.exit_code, "by --job" in alone.stderr) == (2, True)
    assert (without.exit_code, "with --wandb only" in without.stderr) == (2, True)


def test_submit_and_watch_to_a_good_end(server: ScriptedServer, file: str) -> None:
    first = trial(0, step=100, reports=[report(100, 1.5, 1, 1)])
    done = trial(0, "COMPLETED", step=900, objectives=[1.412], reports=[report(100, 1.5, 1, 1)])
    stopped = trial(1, "STOPPED", step=100, reason="rank 2 of 2 at 100 steps", reports=[report(100, 2.0, 2, 2)])
    ended = page(stopped, done)
    server.script(
        success(CREATED, 201),
        success(sweep("PENDING")),
        success(sweep(trials_by_state={"RUNNING": 1})),
        success(page(first)),
        success(sweep("COMPLETED", best=0, trials_by_state={"COMPLETED": 1, "STOPPED": 1})),
        success(ended),
        success(ended),
    )

    answer = run("submit", file, "--watch")

    assert answer.exit_code == 0
    lines = [line.partition("  ")[2] for line in answer.stdout.splitlines()]
    assert answer.stdout.startswith(f"Created {SWEEP_ID}\n")
    assert lines[1].endswith("trial 0 of 60   14.20 of 40 device hours   PENDING")
    assert lines[2:-1] == [
        "RUNNING",
        "#0 started: learning_rate 2.1e-4, batch_size 16, lr_scheduler_type linear",
        "#0 at 100: eval_loss 1.5, 1 of 1",
        "#0 done: eval_loss 1.412",
        "#1 started: learning_rate 2.1e-4, batch_size 16, lr_scheduler_type linear",
        "#1 at 100: eval_loss 2, 2 of 2",
        "#1 stopped: rank 2 of 2 at 100 steps",
        "best 1.412 (#0): learning_rate 2.1e-4, batch_size 16, lr_scheduler_type linear",
        "COMPLETED",
    ]
    assert answer.stdout.splitlines()[-1].startswith(f"{SWEEP_ID} COMPLETED after 12:30, 2 trials: 1 done, 1 stopped; ")
    assert answer.stderr.endswith(f"Train the best once more: trainyard sweep best {SWEEP_ID} --submit\n")


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED"])
def test_watch_exits_with_3_unless_the_sweep_completed(server: ScriptedServer, status: str) -> None:
    server.script(success(sweep(status, status_reason="too many trials failed")), success(page()))

    answer = run("watch", SWEEP_ID)

    assert answer.exit_code == 3
    assert answer.stdout.endswith("0 trials; too many trials failed\n")


def test_watch_prints_the_sweep_as_a_line_of_json_each_time_it_changed(server: ScriptedServer) -> None:
    server.script(
        success(sweep("PENDING")), success(sweep("PENDING")), success(sweep("PAUSED")), success(sweep("CANCELLED"))
    )

    answer = run("watch", SWEEP_ID, "--json")

    found = [json.loads(line)["status"] for line in answer.stdout.splitlines()]
    assert (answer.exit_code, found) == (3, ["PENDING", "PAUSED", "CANCELLED"])


def test_watch_continues_when_the_server_was_away(server: ScriptedServer) -> None:
    server.script(success(sweep("PENDING")), drop, drop, success(sweep("CANCELLED")), success(page()))

    answer = run("watch", SWEEP_ID)

    assert answer.exit_code == 3
    assert answer.stdout.count("the sweep continues; waiting for the server") == 1


def test_trials_that_ended_before_are_not_repeated(server: ScriptedServer) -> None:
    ended = sweep("CANCELLED", trials_by_state={"COMPLETED": 1, "CANCELLED": 1})
    trials = page(trial(1, "CANCELLED"), trial(0, "COMPLETED", objectives=[1.0]))
    server.script(success(ended), success(trials), success(trials))

    assert "#0" not in run("watch", SWEEP_ID).stdout


def test_only_trials_that_may_have_changed_are_read(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_watching, "LEAST_TRIALS", 1)
    first = {**page(trial(3), trial(2, "COMPLETED")), "next_page_token": "more"}
    now = sweep(best=0, trials_by_state={"RUNNING": 1, "COMPLETED": 3})
    best = trial(0, "COMPLETED", objectives=[1.412])
    last = sweep("CANCELLED", best=0, trials_by_state={"CANCELLED": 1, "COMPLETED": 3})
    server.script(success(now), success(first), success(best), success(last), success(first), success(page()))

    run("watch", SWEEP_ID, "--json")

    newest = f"/v1/sweeps/{SWEEP_ID}/trials?page_size=100&order_by=-number"
    asked = [path.replace("order_by=-number&page_size=100", "page_size=100&order_by=-number") for path in paths(server)]
    assert asked == [
        f"/v1/sweeps/{SWEEP_ID}",
        newest,
        f"/v1/sweeps/{SWEEP_ID}/trials/0",
        f"/v1/sweeps/{SWEEP_ID}",
        newest,
    ]


def test_list_shows_a_line_for_each(server: ScriptedServer) -> None:
    server.script(success({"sweeps": [sweep(best=3, trials_by_state={"RUNNING": 4})], "next_page_token": None}))

    answer = run("list", "--status", "running", "--name", "support-lr", "--project", "default")

    assert paths(server)[0].startswith("/v1/sweeps?status=RUNNING&")
    assert "name=support-lr" in paths(server)[0]
    assert "4/60    1.412 (#3)" in answer.stdout
    assert "tpe + asha (100, 300, 900 steps)" in answer.stdout


def test_list_without_sweeps_and_as_json(server: ScriptedServer) -> None:
    server.script(success({"sweeps": [], "next_page_token": None}))

    assert run("list").stdout == "no sweeps\n"
    assert json.loads(run("list", "--json").stdout) == {"sweeps": []}


def test_show_says_what_varies_and_what_was_found(server: ScriptedServer) -> None:
    server.script(success(sweep(best=3, trials_by_state={"RUNNING": 1, "COMPLETED": 3}, pending_reason="no room")))

    text = run("show", SWEEP_ID).stdout

    assert "1e-5 to 0.001, log" in text
    assert "4 to 32 in steps of 4" in text
    assert "0 to 0.2, only if lr_scheduler_type is cosine" in text
    assert "running=1, done=3" in text
    assert "no room" in text
    assert json.loads(run("show", SWEEP_ID, "--json").stdout)["sweep_id"] == SWEEP_ID


def test_trials_are_listed_with_their_jobs(server: ScriptedServer) -> None:
    listed = page(trial(0, "COMPLETED", step=900, objectives=[1.412]), trial(1, "FAILED", reason="OUT_OF_MEMORY: a"))
    server.script(success(sweep()), success(listed))

    answer = run("trials", SWEEP_ID, "--state", "failed", "--state", "completed")

    assert "state=FAILED&state=COMPLETED" in paths(server)[1]
    assert "OUT_OF_MEMORY: a" in answer.stdout
    assert answer.stdout.splitlines()[1].endswith("job-0")


def best_answers(*numbers: int) -> dict[str, Any]:
    listed = [trial(n, "COMPLETED", objectives=[1.4], document={"name": f"best-{n}"}) for n in numbers]
    return {"trials": listed}


def test_best_is_listed(server: ScriptedServer) -> None:
    server.script(success(sweep(best=3)), success(best_answers(3, 1)))

    answer = run("best", SWEEP_ID, "--top", "2")

    assert paths(server)[1] == f"/v1/sweeps/{SWEEP_ID}/best?top=2"
    assert [line.split()[0] for line in answer.stdout.splitlines()] == ["#", "3", "1"]


def test_best_is_submitted_in_the_project_of_its_sweep(server: ScriptedServer) -> None:
    submitted = {"job_id": "job-9", "status": "PENDING", "message": "", "warnings": []}
    server.script(success(sweep(project="red")), success(best_answers(3)), success(submitted, 201))

    answer = run("best", SWEEP_ID, "--submit")

    assert paths(server)[1:] == [f"/v1/sweeps/{SWEEP_ID}/best?top=1&document=true", "/v1/jobs"]
    assert (server.seen[2][2]["X-Project"], json.loads(server.seen[2][3])) == ("red", {"name": "best-3"})
    assert (answer.exit_code, answer.stdout) == (0, "job-9\n")


def test_best_is_submitted_with_the_data_that_was_split_off(server: ScriptedServer) -> None:
    submitted = {"job_id": "job-9", "status": "PENDING", "message": "", "warnings": []}
    split, whole = ({"data_config": {"validation_split": share}} for share in (0.1, 0.0))
    answers = [{"trials": [trial(3, "COMPLETED", objectives=[1.4], document=document)]} for document in (split, whole)]
    answered = [success(each) for each in answers]
    server.script(success(sweep()), answered[0], success(submitted, 201), success(sweep()), answered[1])

    done, refused = (run("best", SWEEP_ID, "--submit", "--all-data") for _ in range(2))

    assert (done.exit_code, json.loads(server.seen[2][3])["data_config"]) == (0, {"validation_split": 0.0})
    assert "splits nothing off" in refused.stderr
    assert "--all-data changes what --submit" in run("best", SWEEP_ID, "--all-data").stderr


@pytest.mark.parametrize(
    ("options", "found", "said"),
    [
        ([], [], "no trial has completed yet"),
        (["--trial", "7"], [3, 1], "trial 7 is not among the best; those are 3, 1"),
    ],
)
def test_without_a_best_trial_nothing_is_submitted(
    server: ScriptedServer, options: list[str], found: list[int], said: str
) -> None:
    server.script(success(sweep()), success(best_answers(*found)))

    answer = run("best", SWEEP_ID, "--submit", *options)

    assert (answer.exit_code, said in answer.stderr) == (1, True)


def test_of_several_objectives_one_is_chosen(server: ScriptedServer) -> None:
    document = {**DOCUMENT, "objective": [{"metric": "eval_loss"}, {"metric": "report.gpu_time_ms"}]}
    server.script(success(sweep(document=document)), success(best_answers(1, 3)))
    asked = run("best", SWEEP_ID, "--submit")
    server.script(
        success(sweep(document=document)), success(best_answers(1, 3)), success({"job_id": "job-9", "status": ""}, 201)
    )

    chosen = run("best", SWEEP_ID, "--submit", "--trial", "3")

    assert "choose one by --trial: 1, 3" in asked.stderr
    assert (chosen.exit_code, json.loads(server.seen[-1][3])) == (0, {"name": "best-3"})


def test_an_earlier_result_is_chosen_by_its_number(server: ScriptedServer) -> None:
    answers = best_answers(-2, 3)
    server.script(success(sweep()), success(answers), success({"job_id": "job-9", "status": ""}, 201))

    chosen = run("best", SWEEP_ID, "--submit", "--trial", "-2")

    assert (chosen.exit_code, json.loads(server.seen[-1][3])) == (0, {"name": "best--2"})


def test_a_best_result_of_an_earlier_sweep_is_no_trial_to_read(server: ScriptedServer) -> None:
    server.script(success(sweep("COMPLETED", best=-2, trials=1)), success(page(trial(0, "COMPLETED"))))

    answer = run("watch", SWEEP_ID, "--json")

    assert answer.exit_code == 0
    assert paths(server) == [f"/v1/sweeps/{SWEEP_ID}", f"/v1/sweeps/{SWEEP_ID}/trials?order_by=-number&page_size=100"]


def test_replay_exits_with_3_when_something_differs(server: ScriptedServer) -> None:
    difference = {"what": "suggestion", "number": 3, "rung": None, "stored": {"lr": 0.1}, "replayed": {"lr": 0.2}}
    whole = {"is_equal": True, "suggestions": 4, "decisions": 7, "differences": [], "to": 3, "next_from": None}
    odd = {**whole, "is_equal": False, "differences": [difference]}
    part, beyond = success({**whole, "next_from": 4}), success({**odd, "to": 9})
    server.script(part, success({**whole, "to": 7}), part, beyond, success(odd))

    equal, different = (run("replay", SWEEP_ID), run("replay", SWEEP_ID, "--from", "2", "--to", "5"))

    assert (equal.exit_code, equal.stdout) == (0, "8 suggestions, 14 decisions at rungs: all equal\n")
    assert [path.partition("?")[2] for path in paths(server)] == ["from=0", "from=4", "from=2", "from=4", "from=4&to=5"]
    assert different.exit_code == 3
    assert "1 differ" in different.stdout
    assert "suggestion  3        lr=0.1  lr=0.2" in different.stdout


@pytest.mark.parametrize(
    ("arguments", "path", "body"),
    [
        (["pause", SWEEP_ID], "pause", {"trials": "pause"}),
        (["pause", SWEEP_ID, "--finish"], "pause", {"trials": "finish"}),
        (["resume", SWEEP_ID], "resume", {}),
        (["stop", SWEEP_ID], "stop", {}),
        (["cancel", SWEEP_ID, "--reason", "enough"], "cancel", {"reason": "enough"}),
    ],
)
def test_requests_to_a_sweep(server: ScriptedServer, arguments: list[str], path: str, body: dict[str, Any]) -> None:
    server.script(success(sweep("PAUSED")))

    answer = run(*arguments)

    assert (server.seen[0][1], json.loads(server.seen[0][3])) == (f"/v1/sweeps/{SWEEP_ID}/{path}", body)
    assert answer.stdout == f"{SWEEP_ID} PAUSED\n"


def test_delete_and_refusals(server: ScriptedServer) -> None:
    server.script(success(None))
    deleted = run("delete", SWEEP_ID)
    server.script(failure(409, {"code": "INVALID_STATE", "message": "it runs"}))

    refused = run("delete", SWEEP_ID)

    assert (deleted.exit_code, deleted.stdout, server.seen[0][0]) == (0, f"{SWEEP_ID} deleted\n", "DELETE")
    assert (refused.exit_code, refused.stderr) == (1, "Error: INVALID_STATE: it runs\n")


def test_a_best_document_with_masked_secrets_is_not_submitted(server: ScriptedServer) -> None:
    document = {"name": "best", "training_config": {"environment": {"MY_TOKEN": "***"}}}
    server.script(success(sweep()), success({"trials": [trial(1, document=document)]}))

    refused = run("best", SWEEP_ID, "--submit")

    assert refused.exit_code == 1
    assert "training_config.environment.MY_TOKEN" in refused.stderr
