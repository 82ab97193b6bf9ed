"""From a job's document to the trl configuration shared by all methods, with the reason for every value."""

from typing import Any

from app.domain.lifecycle.checkpoints import best_rule
from app.domain.spec.hyperparameters.parsing import InvalidHyperparameter, check_data
from app.domain.spec.hyperparameters.trainer_arguments import HF_TRAINER, trainer_arguments
from app.domain.spec.model import Evaluation
from workers.rank.run_context import RunContext, method_of
from workers.rank.spec_sections import data_config, output_config, training_config
from workers.trainers.distributed import TIMEOUT
from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.loop.batch_plan import BatchPlan
from workers.trainers.hf_trainer.loop.lr_schedule import PLATEAU, learning_rate_factor
from workers.trainers.hf_trainer.loop.parallelism import parallelism_of
from workers.trainers.hf_trainer.model.pretrained import precision


def arguments(context: RunContext, plan: BatchPlan, *, validates: bool) -> dict[str, Any]:
    """Configuration arguments of every method. Raises InvalidConfig."""
    return {
        **_optimization(context, plan),
        **_cadence(context, validates=validates),
        **_surroundings(context),
        **_passed_on(context),
    }


def _optimization(context: RunContext, plan: BatchPlan) -> dict[str, Any]:
    values = context.spec.hyperparameters
    copied = (
        "num_train_epochs",
        "max_steps",
        "lr_scheduler_type",
        "optim",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "max_grad_norm",
        "label_smoothing_factor",
        "full_determinism",
    )
    seed = data_config(context.spec).seed
    # A batch that did not fit in memory for training does not fit for evaluation.
    measured = (values["eval_batch_size"] or plan.batch_size, plan.batch_size)
    return {
        **{name: values[name] for name in copied if name in values},
        "learning_rate": values["learning_rate"] * learning_rate_factor(context.spec),
        "warmup_steps": values["warmup_steps"] or values["warmup_ratio"],
        "neftune_noise_alpha": values.get("neftune_noise_alpha") or None,
        "activation_checkpointing": values["gradient_checkpointing"],
        "per_device_train_batch_size": plan.batch_size,
        "per_device_eval_batch_size": min(measured) if plan.is_halved else measured[0],
        "gradient_accumulation_steps": plan.accumulation,
        "seed": seed,
        "data_seed": seed,
    }


def _cadence(context: RunContext, *, validates: bool) -> dict[str, Any]:
    """When to save, evaluate and log; evaluation follows the checkpoints unless the job says otherwise."""
    checkpoint, evaluation = output_config(context.spec).checkpoint, training_config(context.spec).evaluation
    save_strategy, save_steps = checkpoint.save_strategy, checkpoint.save_steps
    if evaluation is None:
        evaluation = Evaluation(strategy=save_strategy if validates else "no")
    eval_strategy = evaluation.strategy
    if eval_strategy != "no" and not validates:
        raise InvalidConfig(
            f"evaluation.strategy is {eval_strategy}, but there is no validation data: "
            "set data_config.validation_split or give a source with split validation"
        )
    values = context.spec.hyperparameters
    try:
        check_data(values, evaluates=eval_strategy != "no", streaming=data_config(context.spec).streaming)
    except InvalidHyperparameter as error:
        raise InvalidConfig(error.message) from error
    best = best_rule(checkpoint, method_of(context.spec))
    plateau = values["lr_scheduler_type"] == PLATEAU
    return {
        "save_strategy": save_strategy,
        "save_steps": save_steps,
        "eval_strategy": eval_strategy,
        "eval_steps": evaluation.steps or save_steps,
        "logging_strategy": "steps",
        "logging_steps": values["logging_steps"],
        # A NaN must be visible, not replaced by the average of earlier losses.
        "logging_nan_inf_filter": False,
        # Not needed otherwise: the best checkpoint is selected where the checkpoints are stored.
        "metric_for_best_model": best[0] if plateau else None,
        "greater_is_better": best[1] if plateau else None,
    }


def _surroundings(context: RunContext) -> dict[str, Any]:
    spec = context.spec
    on_cpu = spec.device_type != "cuda"
    chosen = precision(spec)
    if chosen.note and context.rank == 0:
        print(chosen.note, flush=True)  # noqa: T201  (the job's log is stdout)
    pin_memory = data_config(spec).pin_memory
    return {
        "output_dir": str(context.work_dir / "trainer"),
        "use_cpu": on_cpu,
        "bf16": chosen.bf16,
        "fp16": chosen.fp16,
        "dataloader_num_workers": data_config(spec).num_workers,
        "dataloader_pin_memory": not on_cpu and (pin_memory is None or pin_memory),
        "ddp_timeout": int(TIMEOUT.total_seconds()),
        "report_to": [],
        "disable_tqdm": True,
        **parallelism_of(spec.framework).arguments(context),
    }


def _passed_on(context: RunContext) -> dict[str, Any]:
    """framework.config entries for the Trainer; those of other frameworks configure sharding."""
    if context.spec.framework != HF_TRAINER:
        return {}
    return dict(trainer_arguments(training_config(context.spec).framework.config))
