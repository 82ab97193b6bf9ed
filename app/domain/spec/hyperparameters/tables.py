"""Tables of the hyperparameters of each built-in trainer.

Names follow transformers and peft where these have one.
"""

from dataclasses import replace

from app.domain.spec.hyperparameters import rlhf
from app.domain.spec.hyperparameters.parameter import Hyperparameter

_WITH_WARMUP = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "polynomial",
    "constant_with_warmup",
    "inverse_sqrt",
    "warmup_stable_decay",
)
PLATEAU = "reduce_lr_on_plateau"
SCHEDULERS = (*_WITH_WARMUP[:6], "constant", *_WITH_WARMUP[6:], PLATEAU)
_MIN_LR = ("cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay")


def _with_scheduler(*schedulers: str) -> tuple[str, tuple[str, ...]]:
    return "lr_scheduler_type", schedulers


_LENGTH = (
    Hyperparameter("num_train_epochs", "float", 3.0, "Passes over the training data", 0.001, 100_000),
    Hyperparameter(
        "max_steps", "int", -1, "Optimizer steps; overrides num_train_epochs; -1 = not set", -1, matters="schedule"
    ),
    Hyperparameter(
        "early_stopping_patience",
        "int",
        0,
        "End after this many evaluations in a row without an improvement of metric_for_best_model; 0 = never",
        0,
    ),
    Hyperparameter("early_stopping_threshold", "float", 0.0, "What an improvement must exceed to count", 0.0),
    Hyperparameter(
        "load_best_model_at_end",
        "bool",
        False,
        "Export the weights that were best by metric_for_best_model when they were evaluated, not the last ones",
    ),
)

_SCHEDULE = (
    Hyperparameter(
        "warmup_steps",
        "int",
        0,
        "Steps in which the learning rate rises from 0",
        0,
        only_with=_with_scheduler(*_WITH_WARMUP),
        matters="schedule",
    ),
    Hyperparameter(
        "warmup_ratio",
        "float",
        0.0,
        "The same as a share of all steps, if warmup_steps is 0",
        0.0,
        0.99,
        only_with=_with_scheduler(*_WITH_WARMUP),
        matters="schedule",
    ),
    Hyperparameter(
        "lr_scheduler_type", "choice", "linear", "The learning rate schedule after the warm-up", choices=SCHEDULERS
    ),
    Hyperparameter(
        "lr_num_cycles",
        "int",
        1,
        "How often the cosine is gone through, each time from the peak",
        1,
        1000,
        only_with=_with_scheduler("cosine_with_restarts"),
    ),
    Hyperparameter(
        "min_lr_rate",
        "float",
        0.1,
        "The lowest learning rate as a share of learning_rate",
        0.0,
        1.0,
        only_with=_with_scheduler(*_MIN_LR),
        matters="schedule",
    ),
    Hyperparameter(
        "warmup_lr_rate",
        "float",
        0.1,
        "Where the warm-up starts, as a share of learning_rate",
        0.0,
        1.0,
        only_with=_with_scheduler("cosine_warmup_with_min_lr"),
    ),
    Hyperparameter(
        "lr_power", "float", 1.0, "The exponent of the decay", 0.01, 100.0, only_with=_with_scheduler("polynomial")
    ),
    Hyperparameter(
        "lr_end", "float", 1e-7, "The learning rate at the end", 0.0, 10.0, only_with=_with_scheduler("polynomial")
    ),
    Hyperparameter(
        "lr_timescale",
        "int",
        0,
        "Steps after which the decay has a noticeable effect; 0 = as the warm-up, or 10000",
        0,
        only_with=_with_scheduler("inverse_sqrt"),
    ),
    Hyperparameter(
        "lr_decay_ratio",
        "float",
        0.1,
        "The share of all steps, at the end, in which the learning rate falls",
        0.001,
        1.0,
        only_with=_with_scheduler("warmup_stable_decay"),
        matters="schedule",
    ),
    Hyperparameter(
        "lr_decay_type",
        "choice",
        "cosine",
        "How it falls",
        choices=("cosine", "linear", "1-sqrt"),
        only_with=_with_scheduler("warmup_stable_decay"),
        matters="schedule",
    ),
    Hyperparameter(
        "lr_plateau_factor",
        "float",
        0.5,
        "What the learning rate is multiplied with at a plateau",
        0.001,
        0.999,
        only_with=_with_scheduler(PLATEAU),
    ),
    Hyperparameter(
        "lr_plateau_patience",
        "int",
        1,
        "Evaluations without an improvement that are let pass before",
        0,
        only_with=_with_scheduler(PLATEAU),
    ),
)

_OPTIMIZER = (
    Hyperparameter(
        "optim",
        "choice",
        "adamw_torch_fused",
        "Optimizer",
        choices=("adamw_torch_fused", "adamw_torch", "adafactor", "adagrad", "rmsprop", "sgd"),
    ),
    Hyperparameter("weight_decay", "float", 0.0, "Weight decay; biases and norms have none", 0.0, 10.0),
    Hyperparameter("adam_beta1", "float", 0.9, "Decay of AdamW's mean of gradients", 0.0, 0.999999),
    Hyperparameter("adam_beta2", "float", 0.999, "Decay of AdamW's mean of squared gradients", 0.0, 0.999999),
    Hyperparameter("adam_epsilon", "float", 1e-8, "AdamW's term against division by zero", 0.0, 1.0),
    Hyperparameter("max_grad_norm", "float", 1.0, "Gradients are clipped to this norm; 0 = never", 0.0),
)

_REGULARIZATION = (
    Hyperparameter("label_smoothing_factor", "float", 0.0, "Share of the target spread over all tokens", 0.0, 0.999),
    Hyperparameter("neftune_noise_alpha", "float", 0.0, "Noise on embeddings (NEFTune); 0 = none", 0.0, 1000.0),
)

_COURSE = (
    Hyperparameter("gradient_checkpointing", "bool", False, "Recompute activations: less memory, slower"),
    Hyperparameter("eval_batch_size", "int", 0, "Records per device when evaluating; 0 = as batch_size", 0, 65_536),
    Hyperparameter("logging_steps", "int", 1, "A point of every metric each this many steps", 1, matters="never"),
    Hyperparameter(
        "full_determinism", "bool", False, "On GPUs only kernels that give the same bits every time: slower, exact"
    ),
)

_GROUPED = Hyperparameter("group_by_length", "bool", False, "Batches of records of about one length: less padding")

_BATCHES = (_GROUPED, Hyperparameter("packing", "bool", False, "Put several short records into one sequence"))

_SUPERVISED = (
    *_BATCHES,
    Hyperparameter(
        "assistant_only_loss", "bool", True, "messages: learn assistant turns only, if the chat template marks them"
    ),
    Hyperparameter("completion_only_loss", "bool", True, "prompt and completion: learn the completion only"),
)

_ADAPTER = (
    Hyperparameter("lora_r", "int", 16, "Rank of the adapter's matrices", 1, 4096),
    Hyperparameter("lora_alpha", "int", 32, "The adapter counts lora_alpha / lora_r", 1, 65_536),
    Hyperparameter("lora_dropout", "float", 0.05, "Dropout before the adapter", 0.0, 0.99),
    Hyperparameter(
        "lora_target_modules", "names", "all-linear", "Which modules get an adapter: all-linear, or ends of their names"
    ),
    Hyperparameter("lora_bias", "choice", "none", "Which biases are trained", choices=("none", "all", "lora_only")),
    Hyperparameter("use_rslora", "bool", False, "Scale by lora_alpha / sqrt(lora_r): stable at high ranks"),
    Hyperparameter(
        "use_dora", "bool", False, "Train direction and magnitude apart (DoRA): better at low ranks, slower"
    ),
    Hyperparameter("modules_to_save", "names", "", "Modules that are trained whole, such as embed_tokens,lm_head"),
)

_QUANTIZATION = (
    Hyperparameter(
        "bnb_4bit_quant_type",
        "choice",
        "nf4",
        "What the base model's weights are rounded to: nf4 (16 levels for normally distributed weights) or fp4",
        choices=("nf4", "fp4"),
    ),
    Hyperparameter(
        "bnb_4bit_use_double_quant", "bool", True, "Quantize the scales, too: 0.4 bits less for each parameter"
    ),
)

# Losses of trl that need neither scores nor another model; those that accept label smoothing are listed apart.
_WITH_SMOOTHING = ("exo_pair", "robust", "aot", "aot_unpaired")
_PREFERENCE_LOSSES = (
    *(
        "sigmoid",
        "sigmoid_norm",
        "hinge",
        "ipo",
        "nca_pair",
        "bco_pair",
        "sppo_hard",
        "apo_zero",
        "apo_down",
        "discopop",
    ),
    *_WITH_SMOOTHING,
)

_WITHOUT_DROPOUT = Hyperparameter(
    "disable_dropout",
    "bool",
    True,
    "Without the model's own dropout, which would only blur what is compared: model and reference, or two answers",
)

_PREFERENCES = (
    Hyperparameter(
        "beta",
        "float",
        0.1,
        "How much it costs to move away from the reference model; higher = stays closer",
        0.001,
        100.0,
    ),
    Hyperparameter(
        "loss_type", "choice", "sigmoid", "How a pair is scored: sigmoid is DPO", choices=_PREFERENCE_LOSSES
    ),
    Hyperparameter(
        "label_smoothing",
        "float",
        0.0,
        "The probability that chosen and rejected of a record are the wrong way round",
        0.0,
        0.499,
        only_with=("loss_type", _WITH_SMOOTHING),
    ),
    _WITHOUT_DROPOUT,
    _GROUPED,
)


def _only_with_lora(item: Hyperparameter) -> Hyperparameter:
    # The reference model has no adapter dropout, so the default is 0.
    default = 0.0 if item.name == "lora_dropout" else item.default
    return replace(item, default=default, only_with=(USE_LORA, (True,)))


# For methods that train all weights or, on request, an adapter.
USE_LORA = "use_lora"
_CHOSEN_ADAPTER = (
    Hyperparameter(USE_LORA, "bool", False, "Train an adapter beside the weights instead of all weights"),
    *map(_only_with_lora, _ADAPTER),
)


def _learning_rate(default: float) -> Hyperparameter:
    return Hyperparameter("learning_rate", "float", default, "Peak learning rate", 0.0, 10.0)


# Values that determine optimizer state, trained weights, adapter weights with their scale, and base weights.
FIXED_ON_RESUME = (
    "optim",
    USE_LORA,
    rlhf.ALGORITHM,
    *(item.name for item in (*_ADAPTER, *_QUANTIZATION) if item.name != "lora_dropout"),
)

_COMMON = (*_LENGTH, *_SCHEDULE, *_OPTIMIZER, *_COURSE)
_FULL = (_learning_rate(2e-5), *_COMMON, *_REGULARIZATION, *_SUPERVISED)


def _sharded(items: tuple[Hyperparameter, ...]) -> tuple[Hyperparameter, ...]:
    """Without options that need a second full set of weights, which no rank has."""
    return tuple(item for item in items if item.name != "load_best_model_at_end")


def _for_megatron(item: Hyperparameter) -> Hyperparameter:
    """Restricted to schedules that need no evaluation."""
    return replace(item, choices=_WITHOUT_PLATEAU) if item.name == "lr_scheduler_type" else item


_WITHOUT_PLATEAU = tuple(name for name in SCHEDULERS if name != PLATEAU)
# The Megatron trainer has one optimizer, no second set of weights, and no packing.
_NOT_MEGATRON = ("load_best_model_at_end", "lr_plateau_factor", "lr_plateau_patience", "optim", "full_determinism")
_MEGATRON = tuple(
    _for_megatron(item) for item in (_learning_rate(2e-5), *_COMMON, _GROUPED) if item.name not in _NOT_MEGATRON
)
_MEGATRON_SUPERVISED = (*_MEGATRON, *(item for item in _SUPERVISED if item not in _BATCHES))

TABLES: dict[tuple[str, str], tuple[Hyperparameter, ...]] = {
    ("HF_TRAINER", "SFT"): _FULL,
    ("HF_TRAINER", "FULL_FINETUNE"): _FULL,
    # An adapter starts at zero and tolerates a learning rate ten times as high.
    ("HF_TRAINER", "LORA"): (_learning_rate(2e-4), *_COMMON, *_REGULARIZATION, *_SUPERVISED, *_ADAPTER),
    ("HF_TRAINER", "QLORA"): (
        *(_learning_rate(2e-4), *_COMMON, *_REGULARIZATION, *_SUPERVISED),
        *(*_ADAPTER, *_QUANTIZATION),
    ),
    ("HF_TRAINER", "DPO"): (_learning_rate(1e-6), *_COMMON, *_PREFERENCES, *_CHOSEN_ADAPTER),
    ("HF_TRAINER", "RLHF"): (_learning_rate(1e-6), *_COMMON, *rlhf.ROWS, _WITHOUT_DROPOUT, *_CHOSEN_ADAPTER),
    ("HF_TRAINER", "CONTINUED_PRETRAIN"): (_learning_rate(2e-5), *_COMMON, *_REGULARIZATION),
    ("FSDP", "SFT"): _sharded(_FULL),
    ("FSDP", "FULL_FINETUNE"): _sharded(_FULL),
    ("FSDP", "LORA"): _sharded((_learning_rate(2e-4), *_COMMON, *_REGULARIZATION, *_SUPERVISED, *_ADAPTER)),
    ("FSDP", "DPO"): _sharded((_learning_rate(1e-6), *_COMMON, *_PREFERENCES, *_CHOSEN_ADAPTER)),
    ("FSDP", "RLHF"): _sharded(
        (_learning_rate(1e-6), *_COMMON, *rlhf.ROWS_OF_SHARDS, _WITHOUT_DROPOUT, *_CHOSEN_ADAPTER)
    ),
    ("FSDP", "CONTINUED_PRETRAIN"): _sharded((_learning_rate(2e-5), *_COMMON, *_REGULARIZATION)),
    ("DEEPSPEED", "SFT"): _sharded(_FULL),
    ("DEEPSPEED", "FULL_FINETUNE"): _sharded(_FULL),
    ("DEEPSPEED", "LORA"): _sharded((_learning_rate(2e-4), *_COMMON, *_REGULARIZATION, *_SUPERVISED, *_ADAPTER)),
    ("DEEPSPEED", "QLORA"): _sharded(
        (_learning_rate(2e-4), *_COMMON, *_REGULARIZATION, *_SUPERVISED, *_ADAPTER, *_QUANTIZATION)
    ),
    ("DEEPSPEED", "DPO"): _sharded((_learning_rate(1e-6), *_COMMON, *_PREFERENCES, *_CHOSEN_ADAPTER)),
    ("DEEPSPEED", "RLHF"): _sharded(
        (_learning_rate(1e-6), *_COMMON, *rlhf.ROWS_OF_SHARDS, _WITHOUT_DROPOUT, *_CHOSEN_ADAPTER)
    ),
    ("DEEPSPEED", "CONTINUED_PRETRAIN"): _sharded((_learning_rate(2e-5), *_COMMON, *_REGULARIZATION)),
    ("MEGATRON", "SFT"): _MEGATRON_SUPERVISED,
    ("MEGATRON", "FULL_FINETUNE"): _MEGATRON_SUPERVISED,
    ("MEGATRON", "CONTINUED_PRETRAIN"): tuple(item for item in _MEGATRON if item != _GROUPED),
}
