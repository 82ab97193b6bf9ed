"""Graders as rewards: what counts as a failure, what is measured, and trainings that learn by them."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.domain.graders.document import parse
from tests.trainers.evaluations import AnsweredRun
from tests.trainers.in_process import Outcome, plan_of, runs
from tests.trainers.judges import CHAT, FakeJudge
from workers.rank.run_context import RUN_ENDS, NotAnswered, RunContext, RunSpec, Stop
from workers.trainers.failures import InvalidConfig
from workers.trainers.graders.reward import GraderReward, ModelUnreachable, checked_grader, item_of
from workers.trainers.rewards import RewardFailed

STEPS = 4
VOWELS = """
def grade(sample, item):
    assert "completion" in item and "prompt" in item
    text = sample["output_text"]
    return sum(letter in "aeiou" for letter in text) / max(1, len(text))
"""
PYTHON = {"type": "python", "source": VOWELS}
EXACT = {"type": "string_check", "input": "{{sample.output_text}}", "reference": "{{item.answer}}", "operation": "eq"}
ALIKE = {
    "type": "text_similarity",
    "input": "{{sample.output_text}}",
    "reference": "{{item.completion}}",
    "evaluation_metric": "fuzzy_match",
}
SCORE = {"type": "score_model", "model": "judge", "input": [{"role": "user", "content": "{{sample.output_text}}"}]}
MULTI = {"type": "multi", "graders": {"vowels": PYTHON, "alike": ALIKE}, "calculate_output": "0.5 * vowels + alike"}

Run = Callable[..., RunContext]


def says(text: str) -> str | NotAnswered:
    answers: dict[str, str | NotAnswered] = {
        "good": '{"result": 0.75}',
        "odd": "nothing",
        "unknown": NotAnswered("no such model", 404),
        "lost": NotAnswered("the answer is not finite", 500),
        "over": NotAnswered("the run ends", RUN_ENDS),
        "down": NotAnswered("no replica answers", 503),
    }
    return answers[text]


@pytest.fixture
def reward(tmp_path):
    """A reward of a grader, whose model says what `says` has for a completion; it is closed after the test."""
    made: list[GraderReward] = []

    def make(grader: dict[str, Any], judge: FakeJudge | None = None) -> GraderReward:
        spec = RunSpec(run_dir=tmp_path, framework="HF_TRAINER", training_type="RLHF", threads_per_rank=2)
        made.append(GraderReward(AnsweredRun(spec, judge or FakeJudge(says)), parse(grader), seconds=20))
        return made[-1]

    yield make
    for each in made:
        each.close()


def score(reward: GraderReward, *texts: str, metrics: dict[str, float] | None = None, **column: Any) -> list[float]:
    log = {} if metrics is None else metrics
    columns = [dict.fromkeys(column, value) for value in next(iter(column.values()), ["x"] * len(texts))]
    return reward(prompts=["2+2="] * len(texts), completions=texts, columns=columns, log_metric=log.__setitem__)


def test_each_completion_is_graded_by_its_record(reward):
    assert score(reward(EXACT), "4", "5", "4", answer=["4", "4", "5"]) == [1.0, 0.0, 0.0]


def test_answer_of_a_conversation_is_its_last_message(reward):
    answer = [{"role": "assistant", "content": "4", "tool_calls": [{"function": {"name": "add"}}]}]
    grader = {**EXACT, "input": "{{item.messages[0].content}} {{sample.output_tools[0].function.name}}"}

    prompt = [{"role": "user", "content": "2+2"}]
    found = reward(grader)(prompts=[prompt], completions=[answer], columns=[{"answer": "2+2 add"}])

    assert found == [1.0]


def test_item_is_the_record_with_its_prompt():
    assert item_of("2+2=", {"answer": 4}) == {"prompt": "2+2=", "answer": 4}
    assert item_of([{"role": "user"}], {}) == {"messages": [{"role": "user"}]}


def test_rewards_of_a_multi_grader_are_measured_each(reward):
    grader = {"type": "multi", "graders": {"a": SCORE, "b": EXACT}, "calculate_output": "a + b"}
    metrics: dict[str, float] = {}

    found = score(reward(grader), "good", "odd", metrics=metrics, answer=["good", "odd"])

    assert found == [1.75, 0.0]
    assert metrics == {"grader_errors": 0.5, "graders/a": 0.375, "graders/b": 1.0}


def test_models_are_asked_at_the_same_time(reward):
    judge = FakeJudge(says)

    assert score(reward(SCORE, judge), *["good"] * 8) == [0.75] * 8
    assert {each["path"] for each in judge.asked} == {CHAT}


def test_single_failures_count_nothing_and_are_noted_once(reward, capsys):
    found = reward(SCORE)

    assert [score(found, "good", "odd") for _ in range(2)] == [[0.75, 0.0]] * 2
    assert capsys.readouterr().out.count("the grader score_model gave no reward for a completion") == 1


def test_most_of_a_step_without_rewards_ends_the_job(reward):
    with pytest.raises(RewardFailed) as failed:
        score(reward(SCORE), "lost", "good", "lost")

    assert str(failed.value) == (
        "the grader score_model gave no reward for a completion: judge: the answer is not finite "
        "(500); nor for most of a rank's 3 completions of this step"
    )


def test_completions_that_are_no_json_end_nothing(reward):
    grader = {**EXACT, "input": "{{sample.output_json.sum}}"}

    assert score(reward(grader), "4", "four", '{"sum": 4}', answer=["4"] * 3) == [0.0, 0.0, 1.0]


def test_model_that_is_away_is_a_fault_of_the_moment(reward):
    with pytest.raises(ModelUnreachable) as failed:
        score(reward(SCORE), "good", "down")

    assert (failed.value.error_type, str(failed.value)) == (
        "NETWORK_ERROR",
        "the grader's model judge does not answer: no replica answers",
    )


def test_model_that_may_not_be_asked_is_a_fault_of_the_document(reward):
    with pytest.raises(InvalidConfig, match="the grader can't ask its model judge: no such model"):
        score(reward(SCORE), "good", "unknown")


@pytest.mark.parametrize("status", [408, 409, 429, 502, 503, 504])
def test_statuses_of_a_model_that_is_away(reward, status):
    with pytest.raises(ModelUnreachable):
        score(reward(SCORE, FakeJudge(lambda _: NotAnswered("busy", status))), "good")


def test_step_of_a_run_that_ends_has_no_rewards(reward, capsys):
    grader = {"type": "multi", "graders": {"a": SCORE, "b": EXACT}, "calculate_output": "a + b"}
    metrics: dict[str, float] = {}

    assert score(reward(grader), "over", "good", metrics=metrics, answer=["over", "good"]) == [0.0, 0.0]
    assert metrics == {"grader_errors": 0.0, "graders/a": 0.0, "graders/b": 0.0}
    assert "gave no reward" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["cancel", "pause"])
def test_cancel_does_not_wait_for_a_model_and_a_pause_does(tmp_path, kind):
    asked, answers = threading.Event(), threading.Event()

    class StoppedRun(AnsweredRun):
        @property
        def stop(self) -> Stop | None:
            if asked.is_set() and kind == "pause":
                answers.set()
            return Stop(kind=kind, save_checkpoint=kind == "pause") if asked.is_set() else None

    def hangs(_: str) -> str:
        asked.set()
        answers.wait(60)
        return '{"result": 0.75}'

    spec = RunSpec(run_dir=tmp_path, framework="HF_TRAINER", training_type="RLHF")
    found = GraderReward(StoppedRun(spec, FakeJudge(hangs)), parse(SCORE))

    assert score(found, "good") == [0.0 if kind == "cancel" else 0.75]
    found.close()
    answers.set()


def test_column_that_no_record_has_is_refused_at_the_start():
    with pytest.raises(InvalidConfig, match="the records have no column answer; they have completion"):
        checked_grader(EXACT, ["completion"])
    with pytest.raises(InvalidConfig, match=r"training_config.grader.type must be one of"):
        checked_grader({"type": "x"}, [])


@pytest.fixture(scope="module")
def outcomes(assets, tmp_path_factory) -> dict[str, Outcome]:
    directory: Path = tmp_path_factory.mktemp("graders")
    common = {"max_steps": str(STEPS), "num_generations": "4", "max_completion_length": "8", "beta": "0"}

    def plan(name: str, grader: dict[str, Any], hyperparameters: Any = ()) -> dict[str, Any]:
        training = {"evaluation": {"strategy": "no"}, "grader": grader}
        return plan_of(directory / name, assets, "RLHF", {**common, **dict(hyperparameters)}, training_config=training)

    failing = {"type": "python", "source": "def grade(sample, item):\n    return item['answer']"}
    return runs(
        directory,
        {
            "python": plan("python", PYTHON),
            "multi": plan("multi", MULTI, {"algorithm": "rloo"}),
            "ppo": plan("ppo", MULTI, {"algorithm": "ppo", "num_generations": "2"}),
            "failing": plan("failing", failing),
            "column": plan("column", EXACT),
        },
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["python", "multi", "ppo"])
def test_training_learns_by_a_grader(outcomes, name):
    outcome = outcomes[name]

    assert outcome.error is None
    assert 0 < outcome.series("reward")[1] < 2
    assert outcome.series("reward_std")[1] > 0
    assert outcome.series("grader_errors")[1] == 0
    assert outcome.result["weight_files"] == ["model.safetensors"]


@pytest.mark.timeout(300)
def test_parts_of_the_reward_are_metrics(outcomes):
    values = outcomes["multi"].values

    assert {"graders/vowels", "graders/alike"} <= values.keys()
    for step, reward in values["reward"].items():
        parts = 0.5 * values["graders/vowels"][step] + values["graders/alike"][step]
        assert reward == pytest.approx(parts, abs=1e-4)


@pytest.mark.timeout(300)
def test_failing_grader_ends_the_training_with_its_error(outcomes):
    assert outcomes["failing"].error.startswith(
        "SCRIPT_ERROR: the grader python gave no reward for a completion: line 2"
    )
    assert "KeyError: 'answer'" in outcomes["failing"].error
    assert outcomes["column"].error == (
        "INVALID_CONFIG: grader: the records have no column answer; they have completion"
    )
    assert json.dumps(outcomes["failing"].values.get("reward")) == "null"
