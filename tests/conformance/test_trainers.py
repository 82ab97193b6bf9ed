"""What every built-in trainer owes, asked of each line of the registry: a new one is tested by being there.

The first pair of HF_TRAINER runs in `make test`, the first of each framework that divides a model in `make test-long`,
the others in `make matrix`.
"""

import copy
import json
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from app.domain.errors import InvalidRequest
from app.domain.spec import metrics
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.schemas.jobs import SubmitJobSchema
from tests.builders.example_jobs import DOCUMENTS, SOMEWHERE, filled_in, pair_of
from tests.conformance import example_trainer
from tests.conformance.small_runs import EVERY, STEPS, STOP, UNSUPPORTED, Pair, ranks_of, small_runs, training_type_of
from tests.trainers.in_process import Outcome
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.trainers.registry import TRAINERS

PAIRS = list(TRAINERS)
FIRST_OF_FRAMEWORKS = {framework: (framework, method) for framework, method in reversed(PAIRS)}.values()
ALL = list(range(1, STEPS + 1))
DOCUMENTS_OF = {
    pair_of(document): document
    for document in (filled_in(path, SOMEWHERE) for path in DOCUMENTS)
    if "tasks" not in document  # each of its roles has a script of its own
}
EVALUATED = list(range(EVERY, STEPS + 1, EVERY))
# Of how it runs, which no other run repeats, and of the step itself.
TIMED = ("step_seconds", "samples_per_second", "tokens_per_second", "rank_memory_mb_max")
OF_RANKS = ("slowest_rank", "slowest_rank_seconds", "fastest_rank_seconds")
ALWAYS = ("learning_rate", "grad_norm", "epoch", "tokens", *TIMED)
RULES = ReadingRules(roots=("/srv",))
# peft asks for what transformers calls by a new name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def marked(pair: Pair) -> Any:
    """Pairs of several ranks take longest."""
    of_first = pytest.mark.long if ranks_of(pair[0]) > 1 else ()
    is_first = pair in FIRST_OF_FRAMEWORKS or pair == example_trainer.PAIR
    return pytest.param(pair, marks=of_first if is_first else pytest.mark.matrix, id="/".join(pair))


@pytest.fixture(scope="module", params=[*map(marked, PAIRS), marked(example_trainer.PAIR)])
def pair(request) -> Iterator[Pair]:
    with example_trainer.registered() if request.param == example_trainer.PAIR else nullcontext():
        yield request.param


@pytest.fixture(scope="module")
def ran(pair, assets, run_directory) -> dict[str, Outcome]:
    """Each run of `small_runs`, by its name."""
    return small_runs(run_directory / "-".join(["conformance", *pair]), assets, pair, trainer=TRAINERS[pair])


def test_every_step_is_reported_with_all_that_its_type_measures(ran, pair):
    whole = ran["whole"]

    for name in (*metrics.trained(pair[1]), *ALWAYS):
        assert list(whole.series(name)) == ALL, name
        assert all(map(math.isfinite, whole.series(name).values())), name
    for name in metrics.evaluated(pair[1]):
        assert list(whole.series(metrics.EVAL_PREFIX + name)) == EVALUATED, name
    for name in OF_RANKS if ranks_of(pair[0]) > 1 else ():
        assert list(whole.series(name)) == ALL[1:], name
    assert whole.result["tokens"] > 0
    assert {"loss", "eval_loss", "train_loss"} <= whole.result["final_metrics"].keys()


def test_progress_comes_with_each_step_and_goes_on_where_it_was(ran):
    whole, resumed = (steps_of(ran[name]) for name in ("whole", "resumed"))

    assert whole == [0, *ALL]
    assert resumed == list(range(STOP, STEPS + 1))


def test_phases_come_in_their_order(ran):
    measured = ["TRAINING", "EVALUATING"] * len(EVALUATED)

    assert ran["whole"].phases == [*measured, "CHECKPOINTING", "EXPORTING"]
    assert ran["paused"].phases == ["TRAINING", "EVALUATING", "CHECKPOINTING"]
    assert "EXPORTING" not in ran["cancelled"].phases


def test_same_run_gives_the_same_bits_though_a_checkpoint_is_asked_for(ran):
    """The checkpoint is saved at the next boundary, and the training continues."""
    whole, asked = ran["whole"], ran["asked"]

    assert names_of(whole) == [f"step-{STEPS}"]
    assert names_of(asked) == ["step-1", f"step-{STEPS}"]
    assert asked.result["stopped"] is None
    check_same(asked, whole)


def test_pause_ends_at_a_boundary_and_the_run_that_goes_on_gives_the_same_bits(ran):
    whole, paused, resumed = ran["whole"], ran["paused"], ran["resumed"]

    assert (paused.result["stopped"], paused.result["step"]) == ("pause", STOP)
    assert (paused.result["output"], names_of(paused)) == ("", [f"step-{STOP}"])
    manifest = _manifest.verify(paused.checkpoints[0])
    assert (manifest.step, manifest.metrics["loss"]) == (STOP, paused.series("loss")[STOP])
    check_same(resumed, whole, before=paused)


def test_cancel_ends_at_a_boundary_without_a_checkpoint(ran):
    cancelled = ran["cancelled"]

    assert (cancelled.result["stopped"], cancelled.result["step"]) == ("cancel", STOP)
    assert (cancelled.result["output"], cancelled.checkpoints) == ("", [])


def test_pause_that_can_not_be_saved_is_given_up_and_the_run_goes_on_to_the_same_bits(ran):
    given_up = ran["disk full"]

    assert given_up.pauses_failed == ["OSError: [Errno 28] No space left on device"]
    assert given_up.result["stopped"] is None
    assert names_of(given_up) == [f"step-{STEPS}"]
    check_same(given_up, ran["whole"])


def test_result_loads_by_plain_transformers_or_peft_and_has_learnt(ran, assets):
    output = ran["whole"].output
    files = {path.name for path in output.iterdir()}
    ids = AutoTokenizer.from_pretrained(output)("def f(x):", return_tensors="pt")["input_ids"]

    with torch.no_grad():
        said = loaded(output, assets / "model").eval()(ids).logits

    assert bool(said.isfinite().all())
    assert {"README.md", *ran["whole"].result["weight_files"]} <= files
    assert any_moved(output, assets / "model")


def test_option_that_the_trainer_does_not_know_is_a_wrong_configuration(ran):
    assert ran["unsupported"].error.startswith("INVALID_CONFIG: ")
    assert UNSUPPORTED in ran["unsupported"].error


def test_row_of_hyperparameters_knows_what_every_trainer_takes(pair):
    framework, training_type = pair[0], training_type_of(pair[1])

    values = parsing.parse(framework, training_type, {"max_steps": "7", "learning_rate": "1e-3"})

    assert (values["max_steps"], values["learning_rate"]) == (7, 1e-3)
    with pytest.raises(parsing.InvalidHyperparameter, match=f"{UNSUPPORTED} is unknown to {framework}"):
        parsing.parse(framework, training_type, {UNSUPPORTED: "1"})


@pytest.mark.parametrize("pair", PAIRS, ids="/".join)
def test_there_is_a_document_to_try_it(pair):
    assert pair in DOCUMENTS_OF


@pytest.mark.parametrize("pair", PAIRS, ids="/".join)
@pytest.mark.parametrize("section", ["framework.config", "framework.distributed.config", "hyperparameters"])
def test_unknown_option_is_refused_with_its_field(pair, section):
    document = copy.deepcopy(DOCUMENTS_OF[pair])
    place = document["training_config"]
    for name in section.split("."):
        place = place.setdefault(name, {})
    place[UNSUPPORTED] = "1"

    with pytest.raises(InvalidRequest) as refused:
        from_document(SubmitJobSchema().load(document), RULES)
    assert str(refused.value.field).startswith(f"training_config.{section}")


def names_of(outcome: Outcome) -> list[str]:
    """Of the checkpoints, each of which is complete."""
    return [f"step-{_manifest.verify(path).step}" for path in outcome.checkpoints]


def steps_of(outcome: Outcome) -> list[int]:
    """Those that were reported, in their order, each once; of how many was said each time."""
    assert {total for _, total in outcome.progress_made} == {STEPS}
    return list(dict.fromkeys(step for step, _ in outcome.progress_made))


def check_same(found: Outcome, whole: Outcome, *, before: Outcome | None = None) -> None:
    """To the last bit: what was measured, by steps `before` a stop and later, and the finished weights."""
    for name in whole.values.keys() - {*TIMED, *OF_RANKS}:
        earlier = before.series(name) if before else {}
        assert earlier | found.series(name) == whole.series(name), name
    assert (found.result["stopped"], found.result["step"]) == (None, STEPS)
    assert found.result["tokens"] == whole.result["tokens"]
    assert found.weights() == whole.weights()


def loaded(output: Path, base: Path) -> Any:
    """As the model card says it."""
    adapter = output / "adapter_config.json"
    if adapter.exists():
        return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(output))
    (kind,) = json.loads((output / "config.json").read_text())["architectures"]
    return getattr(transformers, kind).from_pretrained(output)


def any_moved(output: Path, base: Path) -> bool:
    """Whether a weight of the base model has changed, or an adapter is no longer the nothing that it starts at."""
    before = load_file(base / "model.safetensors")
    tensors = [each for path in output.glob("*.safetensors") for each in load_file(path).items()]
    return any(
        bool(tensor.any()) if "lora_B" in name else name in before and not torch.equal(tensor, before[name])
        for name, tensor in tensors
    )
