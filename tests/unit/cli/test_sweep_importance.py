"""`trainyard sweep importance` against a small real HTTP server: bars, JSON and a picture."""

from pathlib import Path
from typing import Any

from tests.builders.sweep_answers import SWEEP_ID
from tests.doubles.scripted_server import Answer, ScriptedServer, failure, success
from tests.systems.commands import run, run_json


def parameter(name: str, importance: float, **more: Any) -> dict[str, Any]:
    row = {"name": name, "importance": importance, "trials": 40, "is_constant": False, "is_conditional": False}
    return {**row, **more}


FOUND: dict[str, Any] = {
    "objective": {"metric": "eval_loss", "goal": "minimize"},
    "completed": 40,
    "needed": 10,
    "best": 5,
    "parameters": [
        parameter("learning_rate", 0.6),
        parameter("warmup_ratio", 0.3, trials=12, is_conditional=True),
        parameter("lora_r", 0.1),
        parameter("packing", 0.0),
        parameter("weight_decay", 0.0, is_constant=True),
    ],
}
DRAWN = '<svg xmlns="http://www.w3.org/2000/svg"><text>größe</text></svg>\n'


def drawn(text: str) -> Answer:
    return lambda handler: handler.reply(200, text.encode(), "image/svg+xml; charset=utf-8")


def test_people_see_bars(server: ScriptedServer) -> None:
    server.script(success(FOUND))

    answer = run("sweep", "importance", SWEEP_ID)

    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.splitlines() == [
        "what matters for eval_loss: the best 5 of 40 completed trials, compared with all",
        f"learning_rate   60%  {'█' * 40}",
        f"warmup_ratio    30%  {'█' * 20}   active in 12 trials",
        f"lora_r          10%  {'█' * 6}▋",
        "packing          0%",
        "constant: weight_decay",
    ]
    assert [(method, path) for method, path, _, _ in server.seen] == [
        ("GET", f"/v1/sweeps/{SWEEP_ID}/figures/importance")
    ]


def test_programs_see_the_whole_answer(server: ScriptedServer) -> None:
    server.script(success({**FOUND, "objective": None}))

    assert run_json("sweep", "importance", SWEEP_ID) == {**FOUND, "objective": None}
    assert "what matters for the Pareto front:" in run("sweep", "importance", SWEEP_ID).stdout


def test_a_picture_is_written_as_it_comes(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(success(FOUND), drawn(DRAWN))

    answer = run("sweep", "importance", SWEEP_ID, "--objective", "a b", "--picture", str(tmp_path / "i.svg"))

    assert (answer.exit_code, answer.stderr) == (0, f"Wrote {tmp_path / 'i.svg'}\n")
    assert (tmp_path / "i.svg").read_text(encoding="utf-8") == DRAWN
    assert [path for _, path, _, _ in server.seen] == [f"/v1/sweeps/{SWEEP_ID}/figures/importance?objective=a+b"] * 2
    assert [headers["Accept"] for _, _, headers, _ in server.seen] == ["application/json", "image/svg+xml"]


def test_too_few_trials_are_no_error(server: ScriptedServer) -> None:
    server.script(success({**FOUND, "completed": 3, "parameters": []}))

    answer = run("sweep", "importance", SWEEP_ID)

    assert (answer.exit_code, answer.stdout) == (0, "importances need 10 completed trials, and there are 3\n")


def test_refusals_and_files_that_can_not_be_written_are_one_line(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(failure(404, {"code": "NOT_FOUND", "message": f"no sweep {SWEEP_ID}"}), success(FOUND), drawn(DRAWN))

    missing = run("sweep", "importance", SWEEP_ID)
    unwritable = run("sweep", "importance", SWEEP_ID, "--picture", str(tmp_path / "none" / "i.svg"))

    assert (missing.exit_code, f"no sweep {SWEEP_ID}" in missing.stderr) == (1, True)
    assert (unwritable.exit_code, "i.svg can't be written" in unwritable.stderr) == (1, True)
