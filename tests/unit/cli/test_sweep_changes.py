"""`trainyard sweep change`, `fork`, `delete --jobs` and the commands for single trials, against a small server."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.main import main
from tests.builders.sweep_answers import DOCUMENT, SWEEP_ID, page, report, sweep, trial
from tests.doubles.scripted_server import ScriptedServer, failure, success

CREATED = {"sweep_id": "sweep-2", "status": "PENDING", "message": "", "warnings": ["job.x: no effect"]}
DELETED = {"sweep_id": SWEEP_ID, "jobs": 12, "jobs_left": 0}


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, ["sweep", *arguments], **options)


def sent(server: ScriptedServer, at: int = -1) -> tuple[str, str, Any]:
    method, path, _, body = server.seen[at]
    return method, path, json.loads(body) if body else None


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--max-trials", "200", "--target", "-1.5"], {"budget": {"max_trials": 200, "target": -1.5}}),
        (["--no-target", "--no-max-seconds"], {"budget": {"max_seconds": None, "target": None}}),
        (["--max-device-hours", "2.5", "--patience", "9"], {"budget": {"max_device_hours": 2.5, "patience": 9}}),
        (["--parallel-trials", "free"], {"budget": {"parallel_trials": "free"}}),
        (["--parallel-trials", "4", "--running", "cancel"], {"budget": {"parallel_trials": 4, "running": "cancel"}}),
        (["--priority", "0"], {"priority": 0}),
        (["--label", "team=a", "--label", "b=c=d"], {"labels": {"team": "a", "b": "c=d"}}),
        (["--no-labels"], {"labels": {}}),
    ],
)
def test_change_sends_what_was_given(server: ScriptedServer, options: list[str], body: dict[str, Any]) -> None:
    server.script(success(sweep()))

    answer = run("change", SWEEP_ID, *options)

    assert sent(server) == ("PATCH", f"/v1/sweeps/{SWEEP_ID}", body)
    assert (answer.exit_code, answer.stdout) == (0, f"{SWEEP_ID} RUNNING\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "name at least one part to change"),
        (["--target", "1", "--no-target"], "--target and --no-target exclude each other"),
        (["--label", "a=b", "--no-labels"], "--label and --no-labels exclude each other"),
        (["--label", "a"], "write KEY=VALUE"),
        (["--parallel-trials", "many"], "neither a whole number nor free"),
    ],
)
def test_change_refuses_what_has_no_meaning(server: ScriptedServer, options: list[str], said: str) -> None:
    answer = run("change", SWEEP_ID, *options)

    assert (answer.exit_code, said in answer.stderr, server.seen) == (2, True, [])


def test_fork_takes_its_changes_from_a_file_and_options_win(server: ScriptedServer, tmp_path: Path) -> None:
    file = tmp_path / "changes.yaml"
    file.write_text("name: other\nmethod: {name: gp}\nbudget: {max_trials: 9, target: 1.0}\n")
    server.script(success(CREATED, 201))

    answer = run("fork", SWEEP_ID, "--file", str(file), "--max-trials", "20", "--no-patience", "--name", "mine")

    budget = {"max_trials": 20, "target": 1.0, "patience": None}
    body = {"name": "mine", "method": {"name": "gp"}, "budget": budget}
    assert sent(server) == ("POST", f"/v1/sweeps/{SWEEP_ID}/fork", body)
    assert (answer.exit_code, answer.stdout) == (0, "sweep-2\n")
    assert answer.stderr == "Warning: job.x: no effect\nFollow it with: trainyard sweep watch sweep-2\n"


def test_fork_sets_values_within_the_parts_of_its_sweep(server: ScriptedServer) -> None:
    server.script(success(sweep(labels={"team": "a"})), success(CREATED, 201))

    answer = run(
        *("fork", SWEEP_ID, "--set", "parameters.learning_rate.max=0.01", "--set", "method.startup_trials=5"),
        *("--set", "parameters.data_config.batch_size.values=[8, 16]", "--set", "labels.round=2"),
        *("--set", "parameters.data_config.seed=3", "--set", "budget.target=1.2", "--max-trials", "80"),
    )

    body = sent(server)[2]
    learning_rate, batch_size = body["parameters"]["learning_rate"], body["parameters"]["data_config.batch_size"]
    assert answer.exit_code == 0, answer.output
    assert (learning_rate["min"], learning_rate["max"]) == (1e-5, 0.01)
    assert (batch_size["values"], body["parameters"]["data_config.seed"]) == ([8, 16], 3)
    assert set(body["parameters"]) == {*DOCUMENT["parameters"], "data_config.seed"}
    assert body["method"] == {"name": "tpe", "startup_trials": 5}  # the server draws with another seed
    assert body["labels"] == {"team": "a", "round": "2"}
    assert body["budget"] == {"target": 1.2, "max_trials": 80}
    assert "early_stopping" not in body


def test_fork_sets_values_within_the_parts_of_its_file(server: ScriptedServer, tmp_path: Path) -> None:
    file = tmp_path / "changes.yaml"
    file.write_text("method: {name: gp}\n")
    server.script(success(CREATED, 201))

    run("fork", SWEEP_ID, "--file", str(file), "--set", "method.seed=9", "--set", "name=mine")

    assert sent(server) == (
        "POST",
        f"/v1/sweeps/{SWEEP_ID}/fork",
        {"method": {"name": "gp", "seed": 9}, "name": "mine"},
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("job.training_config.hyperparameters.max_steps", "a fork has the job of its sweep"),
        ("methods.seed", "(did you mean method?)"),
    ],
)
def test_fork_sets_nothing_of_what_stays_as_it_is(server: ScriptedServer, path: str, said: str) -> None:
    answer = run("fork", SWEEP_ID, "--set", f"{path}=3")

    assert (answer.exit_code, said in answer.stderr, server.seen) == (2, True, [])


def test_fork_refuses_a_budget_of_the_file_that_is_no_object(tmp_path: Path) -> None:
    file = tmp_path / "fork.json"
    file.write_text('{"budget": [3]}')

    answer = run("fork", SWEEP_ID, "--file", str(file), "--max-trials", "20")

    assert (answer.exit_code, "budget of the file must be an object" in answer.stderr) == (2, True)


def test_fork_without_changes_and_as_json(server: ScriptedServer) -> None:
    server.script(success(CREATED, 201))

    answer = run("fork", SWEEP_ID, "--json")

    assert (sent(server)[2], bool(server.seen[0][2]["Idempotency-Key"])) == ({}, True)
    assert json.loads(answer.stdout) == CREATED


def test_fork_is_followed_to_its_end(server: ScriptedServer) -> None:
    server.script(success(CREATED, 201), success(sweep("CANCELLED")), success(page()))

    answer = run("fork", SWEEP_ID, "--watch")

    assert (answer.exit_code, answer.stdout.startswith("Created sweep-2\n")) == (3, True)


def test_a_trial_is_shown_with_its_decisions(server: ScriptedServer) -> None:
    waits = report(900, 1.4, 1, 2, continues=False, is_decided=False)
    reports = [report(100, 1.5, 1, 9), report(300, None, 4, 4, continues=False), waits]
    found = trial(4, "STOPPED", step=300, reports=reports, objectives=[1.5], reason="rank 4 of 4", promoted=True)
    server.script(success({**found, "forked_from": 2, "steps_saved": 50}), success(sweep()))

    text = run("trial", SWEEP_ID, "4").stdout

    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[:2] == [f"trial 4 of {SWEEP_ID}", "state stopped"]
    for line in (
        "reason rank 4 of 4",
        "eval_loss 1.5",
        "step 300 of 900",
        "forked from trial 2, which spared 50 steps",
        "early stopping exempt",
        "100 1.5 1 of 9 continues 2026-11-20T11:24:00.000Z",
        "300 not finite 4 of 4 ends 2026-11-20T11:24:00.000Z",
        "900 1.4 1 of 2 waits 2026-11-20T11:24:00.000Z",
    ):
        assert line in lines
    assert "values learning_rate=2.1e-4, data_config.batch_size=16, lr_scheduler_type=linear" in lines


def test_a_trial_as_json(server: ScriptedServer) -> None:
    server.script(success(trial(4)), success(sweep()))

    assert json.loads(run("trial", SWEEP_ID, "4", "--json").stdout)["number"] == 4


def test_values_by_hand_have_the_types_of_the_document(server: ScriptedServer) -> None:
    parameters = {
        **DOCUMENT["parameters"],
        "version": {"values": ["1", "2"]},
        "dropout": {"values": [0.0, 0.1]},
        "flag": {"type": "bool"},
        "environment.MODE": "1",
    }
    server.script(success(sweep(document={**DOCUMENT, "parameters": parameters})), success(trial(7), 201))

    answer = run(
        *("add", SWEEP_ID, "learning_rate=1e-4", "data_config.batch_size=8", "lr_scheduler_type=linear", "version=2"),
        *("dropout=0", "flag=true", "environment.MODE=1", "unknown=a=b"),
    )

    assert sent(server)[:2] == ("POST", f"/v1/sweeps/{SWEEP_ID}/trials")
    assert json.dumps(sent(server)[2]["values"]) == json.dumps(
        {
            "learning_rate": 0.0001,
            "data_config.batch_size": 8,
            "lr_scheduler_type": "linear",
            "version": "2",
            "dropout": 0.0,
            "flag": True,
            "environment.MODE": "1",
            "unknown": "a=b",
        }
    )
    assert (answer.exit_code, answer.stdout) == (0, "trial 7: job-7\n")


@pytest.mark.parametrize(
    ("assignments", "said"),
    [(["learning_rate"], "write NAME=VALUE"), (["=1"], "write NAME=VALUE"), (["a=1", "a=2"], "a is given twice")],
)
def test_what_is_no_assignment_is_refused(server: ScriptedServer, assignments: list[str], said: str) -> None:
    answer = run("add", SWEEP_ID, *assignments)

    assert (answer.exit_code, said in answer.stderr, server.seen) == (2, True, [])


@pytest.mark.parametrize(
    ("command", "path", "state", "said"),
    [
        ("stop-trial", "stop", "RUNNING", "trial 3 is being stopped\n"),
        ("stop-trial", "stop", "STOPPED", "trial 3 stopped\n"),
        ("promote", "promote", "RUNNING", "trial 3 is exempt\n"),
    ],
)
def test_requests_to_a_trial(server: ScriptedServer, command: str, path: str, state: str, said: str) -> None:
    server.script(success(trial(3, state)))

    answer = run(command, SWEEP_ID, "3")

    assert sent(server) == ("POST", f"/v1/sweeps/{SWEEP_ID}/trials/3/{path}", {})
    assert (answer.exit_code, answer.stdout) == (0, said)
    assert json.loads(run(command, SWEEP_ID, "3", "--json").stdout)["number"] == 3


def test_a_refusal_of_the_server_is_one_line(server: ScriptedServer) -> None:
    server.script(failure(409, {"code": "INVALID_STATE", "message": "it has ended"}))

    answer = run("promote", SWEEP_ID, "3")

    assert (answer.exit_code, answer.stderr) == (1, "Error: INVALID_STATE: it has ended\n")


def test_delete_with_jobs_asks_first(server: ScriptedServer) -> None:
    shown = success(sweep("COMPLETED", trials_by_state={"COMPLETED": 12}))
    server.script(shown, shown, success(DELETED))

    refused = run("delete", SWEEP_ID, "--jobs", input="n\n")
    confirmed = run("delete", SWEEP_ID, "--jobs", input="y\n")

    assert (refused.exit_code, "Delete support-lr and the jobs of its 12 trials" in refused.stderr) == (1, True)
    assert [each[0] for each in server.seen] == ["GET", "GET", "DELETE"]
    assert (confirmed.exit_code, confirmed.stdout) == (0, f"{SWEEP_ID} deleted, and 12 jobs\n")


def test_delete_with_jobs_says_how_many(server: ScriptedServer) -> None:
    server.script(success(DELETED), success({**DELETED, "jobs_left": 2}), success(DELETED))

    done, left, for_programs = (run("delete", SWEEP_ID, "--jobs", "--yes", *more) for more in ([], [], ["--json"]))

    assert sent(server)[:2] == ("DELETE", f"/v1/sweeps/{SWEEP_ID}?jobs=true")
    assert (done.stdout, done.stderr) == (f"{SWEEP_ID} deleted, and 12 jobs\n", "")
    assert "still deleting the files of 2 of them" in left.stderr
    assert json.loads(for_programs.stdout) == {"sweep_id": SWEEP_ID, "deleted": True, "jobs": 12, "jobs_left": 0}
