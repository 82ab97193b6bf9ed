"""Names of the client's fields in errors about the job document that a fine-tuning job becomes. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.compat.naming import Naming
from app.domain.errors import BadSpec, Conflict, NotFound
from app.domain.spec.rules.tracking import KEY_SECRET

DIALECT = "openai"
REST = "trainyard"  # the field that takes parts of a job document
SUPERVISED, DPO, REINFORCEMENT = "supervised", "dpo", "reinforcement"
METHODS = (SUPERVISED, DPO, REINFORCEMENT)
TOP_LEVEL = "hyperparameters"  # the deprecated place
INTEGRATIONS = "integrations"
IN_RUNS = {"project": "experiment", "name": "run_name", "entity": "entity", "tags": "tags"}  # of W&B: its name → ours
_SECTION = "training_config.hyperparameters"
_NAMES = {
    "name": "suffix",
    "labels": "metadata",
    "training_config.base_model": "model",
    "training_config.base_model.model_id": "model",
    "training_config.resume_from_checkpoint": "model",
    "training_config.training_type": "method",
    f"{_SECTION}.reward": "method.reinforcement.grader",
    "training_config.grader": "method.reinforcement.grader",
    "data_config.sources": "training_file",
    "data_config.sources.0": "training_file",
    "data_config.sources.1": "validation_file",
    "data_config.seed": "seed",
}
_OF_HYPERPARAMETERS = {
    f"{_SECTION}.num_train_epochs": "n_epochs",
    f"{_SECTION}.learning_rate": "learning_rate_multiplier",
    "data_config.batch_size": "batch_size",
    "data_config.gradient_accumulation_steps": "batch_size",
}
_OF_METHODS = {
    SUPERVISED: {},
    DPO: {f"{_SECTION}.beta": "beta"},
    REINFORCEMENT: {f"{_SECTION}.num_generations": "compute_multiplier", "training_config.evaluation": "eval_interval"},
}


def place_of(method: str, *, top_level: bool) -> str:
    """The field with the hyperparameters."""
    return TOP_LEVEL if top_level else f"method.{method}.hyperparameters"


def naming_of(method: str, *, top_level: bool, integrations: int = 0) -> Naming:
    """What the client calls the fields of the document; all others are those of `trainyard`."""
    place = place_of(method, top_level=top_level)
    its = {native: f"{place}.{name}" for native, name in {**_OF_HYPERPARAMETERS, **_OF_METHODS[method]}.items()}
    for number in range(integrations):
        ours, run = f"tracking.{number}", f"{INTEGRATIONS}.{number}"
        its |= {ours: run, **{f"{ours}.{native}": f"{run}.wandb.{name}" for name, native in IN_RUNS.items()}}
    return Naming({**_NAMES, **its}, REST, holds_native=True)


@contextmanager
def renamed(naming: Naming) -> Iterator[None]:
    """As `Naming.errors`; also what is missing, or can't be used now, is named as the client does."""
    try:
        with naming.errors():
            yield
    except BadSpec as error:
        if (error.field or "").startswith(f"{INTEGRATIONS}.") and f"/{KEY_SECRET}/" in error.message:
            error.message += f". Or leave {INTEGRATIONS} out and give {REST}.tracking, which takes a token"
        raise
    except (NotFound, Conflict) as error:
        if error.field is not None:
            error.field = naming.field(error.field)
        raise
