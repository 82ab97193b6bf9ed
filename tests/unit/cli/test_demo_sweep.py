"""`trainyard demo --sweep`: the document of the example, and what is shown of its best trials."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.client import watch as watching
from app.cli.local import demo_sweep
from app.domain.sweeps.rules import document as rules
from app.domain.sweeps.rungs import rungs_of
from app.domain.sweeps.spec import SweepSpec
from app.schemas.tuning.sweeps import CreateSweepSchema
from tests.builders.sweep_answers import page, sweep, trial
from tests.doubles.scripted_server import ScriptedServer, running, success
from trainyard.client import Client

ASSETS = Path("/srv/demo")
CREATED = {"sweep_id": "sweep-01900000-0000-7000-8000-000000000001", "status": "PENDING", "message": "", "warnings": []}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    with running() as server:
        yield server


@pytest.mark.parametrize(("steps", "expected"), [(None, (8, 24, 72)), (9, (1, 3, 9)), (1, (1,)), (90, (10, 30, 90))])
def test_document_is_accepted_at_any_length(steps: int | None, expected: tuple[int, ...]) -> None:
    spec: SweepSpec = CreateSweepSchema().load(demo_sweep.document(ASSETS, steps))

    rules.check(spec)

    assert rungs_of(spec.early_stopping) == expected
    assert "@" not in json.dumps(spec.to_json())


def test_best_trials_and_a_replay_are_shown(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    done = trial(0, "COMPLETED", step=72, objectives=[1.412])
    ended = sweep("COMPLETED", best=0, trials_by_state={"COMPLETED": 1})
    replayed = {"is_equal": True, "suggestions": 1, "decisions": 3, "differences": []}
    server.script(
        success(CREATED, 201),
        success(ended),
        success(page(done)),
        success(page(done)),
        success({"trials": [{**done, "document": None}]}),
        success(replayed),
        success({"job_id": "job-0", "status": "COMPLETED"}),
    )

    job = demo_sweep.search(Client(server.url, "key"), ASSETS, None)

    shown = capsys.readouterr().out
    assert job.job_id == "job-0"
    assert "Searching for hyperparameters: sweep-01900000-0000-7000-8000-000000000001" in shown
    assert "The best trials" in shown
    assert "1 suggestions and 3 decisions computed again: equal" in shown


def test_a_sweep_that_fails_ends_the_demo(server: ScriptedServer) -> None:
    server.script(success(CREATED, 201), success(sweep("FAILED")), success(page()))

    with pytest.raises(SystemExit) as caught:
        demo_sweep.search(Client(server.url, "key"), ASSETS, None)

    assert caught.value.code == watching.EXIT_NOT_COMPLETED


def test_an_interrupted_demo_cancels_its_sweep(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script(success(CREATED, 201), success(sweep("FINISHING")))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_sweep, "follow", interrupt)

    with pytest.raises(KeyboardInterrupt):
        demo_sweep.search(Client(server.url, "key"), ASSETS, None)

    assert server.seen[-1][:2] == ("POST", "/v1/sweeps/sweep-01900000-0000-7000-8000-000000000001/cancel")
