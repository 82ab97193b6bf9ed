"""Request for a fine-tuning job → native job document. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.compat.openai.fine_tuning import auto, rates
from app.compat.openai.fine_tuning.data_files import (
    TRAINING_FILE,
    VALIDATION_FILE,
    UploadedDataFile,
    records_of,
    refuse_unfit,
)
from app.compat.openai.fine_tuning.graders import FIELD as GRADER_FIELD
from app.compat.openai.fine_tuning.graders import GRADER, REWARD, native_of
from app.compat.openai.fine_tuning.merging import document_of, fill, found_at, say
from app.compat.openai.fine_tuning.naming import (
    DIALECT,
    DPO,
    IN_RUNS,
    INTEGRATIONS,
    REINFORCEMENT,
    REST,
    SUPERVISED,
    TOP_LEVEL,
    place_of,
)
from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.model import WANDB
from app.schemas.jobs import LABEL_KEY
from app.services.model_registry.resolving import BaseChoice

DEFAULT_NAME = "fine-tune"
LABEL = "openai."  # before the name of a pair of metadata
LONGEST_LABEL = 255
TRAINING_TYPES = {SUPERVISED: ("LORA", "QLORA", "SFT", "FULL_FINETUNE"), DPO: ("DPO",), REINFORCEMENT: ("RLHF",)}
_HYPERPARAMETERS = "training_config.hyperparameters"
_EPOCHS, _RATE = f"{_HYPERPARAMETERS}.num_train_epochs", f"{_HYPERPARAMETERS}.learning_rate"
_STEPS, _GENERATIONS = f"{_HYPERPARAMETERS}.max_steps", f"{_HYPERPARAMETERS}.num_generations"
_REWARDS = (GRADER, REWARD, f"{_HYPERPARAMETERS}.reward_model_id")
_BATCH, _ACCUMULATION = "data_config.batch_size", "data_config.gradient_accumulation_steps"
_FEWEST_GENERATIONS, _MOST_GENERATIONS = 2, 4096
_HIGHEST_RATE = 10


class Native(NamedTuple):
    """A document that is not yet checked by the schema, and the data to return later."""

    document: dict[str, Any]
    foreign: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ResolvedRequest:
    """A request whose method and names are resolved."""

    body: Mapping[str, Any]
    base: BaseChoice
    training: UploadedDataFile
    validation: UploadedDataFile | None
    drawn_seed: int

    @property
    def method(self) -> str:
        return method_of(self.body)

    @property
    def place(self) -> str:
        return place_of(self.method, top_level=TOP_LEVEL in self.body)

    @property
    def hyperparameters(self) -> Mapping[str, Any]:
        return self.body.get(TOP_LEVEL) or self.settings.get("hyperparameters") or {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the request says of its method."""
        return (self.body.get("method") or {}).get(self.method) or {}

    def number(self, name: str) -> Any:  # noqa: ANN401 – a number of the schema
        """None where it is left to us."""
        return None if auto.is_left(self.hyperparameters, name) else self.hyperparameters[name]


def method_of(body: Mapping[str, Any]) -> str:
    return str((body.get("method") or {}).get("type") or SUPERVISED)


def to_native(asked: ResolvedRequest) -> Native:
    """Raises BadSpec for what contradicts itself, its data or `trainyard`, and NotSupportedYet."""
    _refuse_contradictions(asked)
    document = document_of(asked.body.get(REST) or {})
    _say_names(document, asked)
    _say_integrations(document, asked)
    _say_data(document, asked)
    _fill_trainer(document, asked)
    _OF_METHODS[asked.method](document, asked)
    _say_length(document, asked)
    _say_batch(document, asked)
    for name, value in asked.base.hyperparameters.items():
        say(document, f"{_HYPERPARAMETERS}.{name}", value, "model")
    return Native(document, {DIALECT: _stored(document, asked)})


def _refuse_contradictions(asked: ResolvedRequest) -> None:
    body, method = asked.body, asked.method
    for other in (body.get("method") or {}).keys() - {"type", method}:
        raise BadSpec(f"has no effect with method.type {method}; leave it out", field=f"method.{other}")
    if TOP_LEVEL in body and asked.settings.get("hyperparameters"):
        raise BadSpec("say hyperparameters in method alone; at the top level they are deprecated", field=TOP_LEVEL)
    if TOP_LEVEL in body and method != SUPERVISED:
        raise BadSpec(f"say them in method.{method}: at the top level they are those of supervised", field=TOP_LEVEL)
    refuse_unfit(asked.training, method, TRAINING_FILE)
    if asked.validation is not None:
        refuse_unfit(asked.validation, method, VALIDATION_FILE)


def _say_names(document: dict[str, Any], asked: ResolvedRequest) -> None:
    if suffix := asked.body.get("suffix"):
        say(document, "name", suffix, "suffix")
    fill(document, "name", DEFAULT_NAME)
    for name, value in (asked.body.get("metadata") or {}).items():
        if (label := label_of(name, value)) is not None:
            labels = document.setdefault("labels", {})
            if label in labels:
                raise BadSpec(f"labels.{label} is set by metadata; leave it out of {REST}", field=f"{REST}.labels")
            labels[label] = value


def label_of(name: str, value: str) -> str | None:
    """The label of a pair of metadata; None for one that labels can't hold."""
    label = f"{LABEL}{name}"
    return label if LABEL_KEY.fullmatch(label) is not None and len(value) <= LONGEST_LABEL else None


def _say_integrations(document: dict[str, Any], asked: ResolvedRequest) -> None:
    """Each is a run of W&B; an integration has no key, so that it needs one which the operator stores."""
    runs = [
        {"kind": WANDB, **{native: given for name, native in IN_RUNS.items() if (given := each[WANDB].get(name))}}
        for each in asked.body.get(INTEGRATIONS) or ()
    ]
    if runs:
        say(document, "tracking", runs, INTEGRATIONS)


def _say_data(document: dict[str, Any], asked: ResolvedRequest) -> None:
    sources = [{"path": asked.training.id, "split": "train"}]
    if asked.validation is not None:
        sources.append({"path": asked.validation.id, "split": "validation"})
    say(document, "data_config.sources", sources, TRAINING_FILE)
    if "seed" in asked.body:
        say(document, "data_config.seed", asked.body["seed"], "seed")
    fill(document, "data_config.seed", asked.drawn_seed)


def _fill_trainer(document: dict[str, Any], asked: ResolvedRequest) -> None:
    known = TRAINING_TYPES[asked.method]
    fill(document, "training_config.training_type", known[0])
    if found_at(document, "training_config.training_type") not in known:
        raise BadSpec(
            f"must be {' or '.join(known)} with method {asked.method}", field=f"{REST}.training_config.training_type"
        )
    fill(document, "training_config.framework.type", "HF_TRAINER")
    fill(document, "resource_config.gpu_count", 1)
    say(document, "training_config.base_model", dict(asked.base.base_model), "model")
    if not found_at(document, "data_config.streaming"):
        fill(document, "output_config.checkpoint", {"save_strategy": "epoch"})


def _supervised(document: dict[str, Any], asked: ResolvedRequest) -> None:
    """Has no hyperparameters of its own."""


def _dpo(document: dict[str, Any], asked: ResolvedRequest) -> None:
    fill(document, f"{_HYPERPARAMETERS}.use_lora", "true")
    if (beta := asked.number("beta")) is not None:
        say(document, f"{_HYPERPARAMETERS}.beta", str(beta), f"{asked.place}.beta")


def _reinforcement(document: dict[str, Any], asked: ResolvedRequest) -> None:
    fill(document, f"{_HYPERPARAMETERS}.use_lora", "true")
    fill(document, f"{_HYPERPARAMETERS}.algorithm", "grpo")
    _say_reward(document, asked)
    if asked.number("eval_samples") is not None:
        raise NotSupportedYet(
            "one completion of each record of validation_file is evaluated; leave it out, or auto",
            field=f"{asked.place}.eval_samples",
        )
    if asked.hyperparameters.get("reasoning_effort") not in (None, "default"):
        raise NotSupportedYet("is not supported; leave it out, or default", field=f"{asked.place}.reasoning_effort")
    if (multiplier := asked.number("compute_multiplier")) is not None:
        say(document, _GENERATIONS, str(_generations_of(multiplier, asked)), f"{asked.place}.compute_multiplier")
    fill(document, _GENERATIONS, str(rates.GENERATIONS))
    if (interval := asked.number("eval_interval")) is not None:
        if asked.validation is None:
            raise BadSpec("needs a validation_file", field=f"{asked.place}.eval_interval")
        evaluation = {"strategy": "steps", "steps": interval}
        say(document, "training_config.evaluation", evaluation, f"{asked.place}.eval_interval")


def _generations_of(multiplier: float, asked: ResolvedRequest) -> int:
    generations = round(rates.GENERATIONS * multiplier)
    if not _FEWEST_GENERATIONS <= generations <= _MOST_GENERATIONS:
        least, most = _FEWEST_GENERATIONS / rates.GENERATIONS, _MOST_GENERATIONS // rates.GENERATIONS
        raise BadSpec(
            f"makes {generations} completions of each prompt; {_FEWEST_GENERATIONS} to {_MOST_GENERATIONS} can be "
            f"compared: {least:g} to {most}",
            field=f"{asked.place}.compute_multiplier",
        )
    return generations


def _say_reward(document: dict[str, Any], asked: ResolvedRequest) -> None:
    grader = asked.settings.get("grader")
    said = [path for path in _REWARDS if found_at(document, path) is not None]
    if grader is None:
        if not said:
            raise BadSpec("is required", field=GRADER_FIELD)
        return
    if said:
        raise BadSpec(f"{said[0]} is set by {GRADER_FIELD}; leave it out of {REST}", field=f"{REST}.{said[0]}")
    say(document, *native_of(grader), GRADER_FIELD)


_OF_METHODS = {SUPERVISED: _supervised, DPO: _dpo, REINFORCEMENT: _reinforcement}


def _say_length(document: dict[str, Any], asked: ResolvedRequest) -> None:
    """Epochs and learning rate."""
    if (epochs := asked.number("n_epochs")) is not None:
        if rates.has_most_steps(document):
            raise BadSpec(
                f"contradicts {REST}.{_STEPS}, which ends the training; leave one of them out",
                field=f"{asked.place}.n_epochs",
            )
        say(document, _EPOCHS, str(epochs), f"{asked.place}.n_epochs")
    elif found_at(document, _EPOCHS) is None and found_at(document, _STEPS) is None:
        fill(document, _EPOCHS, str(auto.epochs_of(records_of(asked.training))))
    if (multiplier := asked.number("learning_rate_multiplier")) is not None:
        rate = rates.rate_of(document["training_config"], multiplier)
        if rate > _HIGHEST_RATE:
            raise BadSpec(
                f"makes a learning rate of {rate:g}; at most {_HIGHEST_RATE}",
                field=f"{asked.place}.learning_rate_multiplier",
            )
        say(document, _RATE, repr(rate), f"{asked.place}.learning_rate_multiplier")


def _say_batch(document: dict[str, Any], asked: ResolvedRequest) -> None:
    devices, field = rates.devices_of(document), f"{asked.place}.batch_size"
    batch = asked.number("batch_size")
    if batch is None:
        if found_at(document, _BATCH) is not None or found_at(document, _ACCUMULATION) is not None:
            return
        batch = auto.batch_of(records_of(asked.training), devices)
        _split(document, batch, devices, fill)
        return
    if asked.training.records is not None and batch > asked.training.records:
        raise BadSpec(f"must not exceed the {asked.training.records} records of {asked.training.id}", field=field)
    if batch % devices:
        raise BadSpec(f"must be a multiple of the {devices} devices that share a batch", field=field)
    _split(document, batch, devices, lambda into, path, value: say(into, path, value, field))


def _split(document: dict[str, Any], batch: int, devices: int, put: Any) -> None:  # noqa: ANN401 – `fill`, or `say`
    """A step of a reinforcement takes all completions of its prompts."""
    split = auto.split_of(batch * rates.completions_of(document["training_config"]), devices)
    put(document, _BATCH, split.per_device)
    put(document, _ACCUMULATION, split.accumulation)


def _stored(document: Mapping[str, Any], asked: ResolvedRequest) -> dict[str, Any]:
    names = ("model", TRAINING_FILE, VALIDATION_FILE, "suffix", "metadata", INTEGRATIONS)
    given = {name: value for name, value in asked.hyperparameters.items() if not auto.is_left({name: value}, name)}
    given.pop("compute_multiplier", None)  # it is rounded: say what is trained
    method: dict[str, Any] = {"hyperparameters": {**rates.hyperparameters_of(document), **given}}
    if grader := asked.settings.get("grader"):
        method["grader"] = grader
    return {
        **{name: asked.body[name] for name in names if asked.body.get(name)},
        "seed": document["data_config"]["seed"],
        "method": {"type": asked.method, asked.method: method},
    }
