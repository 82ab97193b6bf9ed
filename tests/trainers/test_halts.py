"""Halts and extra checkpoints of a document: exact on all ranks, and a resumed run is the same run, bit by bit."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.in_process import Outcome, plan_of, runs

pytestmark = pytest.mark.long

STEPS = 10  # an epoch has 8
EVERY = ("loss", "learning_rate", "grad_norm", "eval_loss")
NEVER: dict[str, Any] = {"evaluation": {"strategy": "no"}}
RARELY: dict[str, Any] = {"evaluation": {"strategy": "steps", "steps": 100}}
EPOCHS: dict[str, Any] = {"evaluation": {"strategy": "epoch"}}
BY_EPOCH = {"checkpoint": {"save_strategy": "epoch"}}


def halting(*at: int, unit: str = "steps", **training: Any) -> dict[str, Any]:
    return {"training_config": {**(training or RARELY), "halt_at": {"unit": unit, "at": list(at)}}}


def saving(*at: int, **training: Any) -> dict[str, Any]:
    return {
        "training_config": training or RARELY,
        "output_config": {"checkpoint": {"save_steps": 100, "save_at": list(at)}},
    }


def pause(**changes: Any) -> dict[str, Any]:
    return {"type": "pause", "save_checkpoint": True, "number": 0, **changes}


# By name: what the document says, and what happens to the run.
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "whole": (halting(3, 5), {"unstored": [3, 5]}),
    "at 3": (halting(3, 5), {}),
    "at 5": (halting(3, 5), {"resumes": ("at 3", 3)}),
    "end": (halting(3, 5), {"resumes": ("at 5", 5)}),
    "whole epochs": (halting(1, unit="epochs", **EPOCHS) | {"output_config": BY_EPOCH}, {"unstored": [8]}),
    "at epoch 1": (halting(1, unit="epochs", **EPOCHS) | {"output_config": BY_EPOCH}, {}),
    "end of epochs": (
        halting(1, unit="epochs", **EPOCHS) | {"output_config": BY_EPOCH},
        {"resumes": ("at epoch 1", 8)},
    ),
    "at the last step": (halting(STEPS), {}),
    "without evaluation": (halting(3, **NEVER), {}),
    "paused at once": (halting(3), {"commands": {3: pause()}}),
    "drained at once": (halting(3), {"commands": {3: {"type": "requeue"}}}),
    "forced at once": (halting(3), {"commands": {3: pause(force=True)}}),
    "cancelled at once": (halting(3), {"commands": {3: {"type": "cancel"}}}),
    "unwritten": (halting(3), {"unwritten": [3]}),
    "paused after a failed halt": (halting(3), {"unstored": [3], "commands": {3: pause()}}),
    "saved at 2 and 4": (saving(2, 4), {}),
    "saved at an epoch's end": (saving(8, **EPOCHS), {}),
    "resumed from there": (saving(8, **EPOCHS), {"resumes": ("saved at an epoch's end", 8)}),
}


@pytest.fixture(scope="module", params=[1, 2], ids=["1-rank", "2-ranks"])
def outcomes(request: pytest.FixtureRequest, assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("halts")
    values = {"max_steps": str(STEPS), "warmup_steps": "3"}
    plans: dict[str, Any] = {}
    for name, (document, events) in RUNS.items():
        earlier, step = events.get("resumes", ("", 0))
        start = {"resume_checkpoint": str(directory / earlier / "checkpoints" / f"step-{step}")} if earlier else {}
        plans[name] = plan_of(
            directory / name, assets, "SFT", values, world_size=request.param, **document, **start
        ) | {key: value for key, value in events.items() if key != "resumes"}
    return runs(directory, plans, world_size=request.param)


def ends(found: Outcome) -> tuple[str | None, int]:
    assert found.error is None
    return found.result["stopped"], found.result["step"]


def steps_saved(found: Outcome) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in found.checkpoints]


@pytest.mark.timeout(300)  # the first one waits for all the runs
@pytest.mark.parametrize(
    ("whole", "parts", "at"),
    [("whole", ["at 3", "at 5", "end"], [3, 5, STEPS]), ("whole epochs", ["at epoch 1", "end of epochs"], [8, STEPS])],
)
def test_halted_run_resumes_as_if_it_had_never_stopped(
    outcomes: dict[str, Outcome], whole: str, parts: list[str], at: list[int]
) -> None:
    found = [outcomes[name] for name in parts]

    assert [ends(part) for part in found] == [(None if step == STEPS else "halt", step) for step in at]
    assert [sorted(part.series("eval_loss")) for part in found] == [[step] for step in at]
    assert steps_saved(found[0]) == at[:1]
    for name in EVERY:
        joined = {step: value for part in found for step, value in part.series(name).items()}
        assert joined == outcomes[whole].series(name), name
    assert found[-1].weights() == outcomes[whole].weights()


def test_halt_whose_checkpoint_is_not_stored_does_not_stop_the_run(outcomes: dict[str, Outcome]) -> None:
    unstored, unwritten = outcomes["whole"], outcomes["unwritten"]

    assert (ends(unstored), ends(unwritten)) == ((None, STEPS), (None, STEPS))
    assert [note["reason"] for note in unstored.notes] == ["CHECKPOINT_FAILED"] * 2
    assert "continues past its halt" in unwritten.notes[0]["message"]
    assert unstored.pauses_failed == []


def test_last_step_is_the_normal_end(outcomes: dict[str, Outcome]) -> None:
    assert ends(outcomes["at the last step"]) == (None, STEPS)
    assert outcomes["at the last step"].result["weight_files"] != []


def test_run_that_never_evaluates_halts_without(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["without evaluation"]

    assert (ends(found), steps_saved(found), found.series("eval_loss")) == (("halt", 3), [3], {})


@pytest.mark.parametrize(
    ("name", "stopped", "saved"),
    [
        ("paused at once", "halt", [3]),
        ("drained at once", "halt", [3]),
        ("forced at once", "pause", [3]),
        ("cancelled at once", "cancel", []),
    ],
)
def test_request_at_a_halt_is_met_by_it_or_keeps_its_meaning(
    outcomes: dict[str, Outcome], name: str, stopped: str, saved: list[int]
) -> None:
    found = outcomes[name]

    assert (ends(found), steps_saved(found)) == ((stopped, 3), saved)
    assert sorted(found.series("eval_loss")) == saved


def test_pause_that_came_at_a_failed_halt_is_followed_at_the_next_step(outcomes: dict[str, Outcome]) -> None:
    assert ends(outcomes["paused after a failed halt"]) == ("pause", 4)


def test_checkpoints_are_saved_at_the_steps_of_the_document(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["saved at 2 and 4"]

    assert (ends(found), steps_saved(found)) == ((None, STEPS), [2, 4, STEPS])
    assert sorted(found.series("eval_loss")) == [STEPS]


def test_checkpoint_at_the_end_of_an_epoch_is_saved_after_its_evaluation(outcomes: dict[str, Outcome]) -> None:
    whole, resumed = outcomes["saved at an epoch's end"], outcomes["resumed from there"]

    assert steps_saved(whole) == [8, STEPS]
    assert sorted(whole.series("eval_loss")) == [8, STEPS]
    assert resumed.weights() == whole.weights()
    assert resumed.series("eval_loss") == {STEPS: whole.series("eval_loss")[STEPS]}


@pytest.mark.parametrize(
    ("framework", "options"), [("MEGATRON", {"tensor_parallel": "2"}), ("FSDP", {}), ("DEEPSPEED", {"zero_stage": "3"})]
)
def test_frameworks_that_divide_the_model_halt_on_all_ranks(
    assets: Path, tmp_path: Path, framework: str, options: dict[str, str]
) -> None:
    training = {"framework": {"config": options}, "halt_at": {"at": [2]}, **RARELY}
    plans = {
        name: plan_of(
            tmp_path / name,
            assets,
            "SFT",
            {"max_steps": "3"},
            world_size=2,
            framework=framework,
            training_config=training,
            data_config={"batch_size": 4} if framework == "MEGATRON" else {},
        )
        for name in ("whole", "halted", "resumed")
    }
    plans["whole"]["unstored"] = [2]
    plans["resumed"]["spec"]["resume_checkpoint"] = str(tmp_path / "halted" / "checkpoints" / "step-2")

    whole, halted, resumed = runs(tmp_path, plans, world_size=2).values()

    assert (ends(halted), ends(resumed)) == (("halt", 2), (None, 3))
    for name in ("loss", "eval_loss"):
        assert halted.series(name) | resumed.series(name) == whole.series(name), name
    assert resumed.weights() == whole.weights()
