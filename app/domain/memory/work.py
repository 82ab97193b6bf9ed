"""What of a job's document decides on memory: the method, the batch, what is trained, and how the devices share it."""

from dataclasses import dataclass

from app.domain.memory.numerics import Numerics, numerics
from app.domain.spec.document import trainer
from app.domain.spec.hyperparameters import rlhf
from app.domain.spec.hyperparameters.parsing import CUSTOM, USE_LORA, InvalidHyperparameter, Value, names, parse
from app.domain.spec.inference import TRAINING
from app.domain.spec.model import JobDocument

ALL_LINEAR = "all-linear"
DPO, QLORA, LORA = "DPO", "QLORA", "LORA"


class NotEstimated(Exception):
    """The document does not decide on the job's memory; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    rank: int
    targets: frozenset[str]  # ALL_LINEAR, or ends of names
    dropout: float
    whole: frozenset[str]  # modules that are trained whole


@dataclass(frozen=True, kw_only=True)
class Work:
    """One device's work; lengths are those of the longest records that the document allows."""

    framework: str
    method: str
    sequences: int  # of a forward pass
    length: int  # in tokens
    accumulates: bool
    checkpointing: bool
    optimizer: str
    adapter: Adapter | None
    quantized: bool
    double_quantized: bool
    has_reference: bool  # a second copy of the weights
    full_logits: bool
    scores: bool  # a head of one number, in place of the vocabulary's
    generated: int  # sequences that are generated at once; 0: none
    has_reward_model: bool
    attention: str | None
    numerics: Numerics
    is_of_that_length: bool  # whether every batch has that length, as by packing

    @property
    def tokens(self) -> int:
        return self.sequences * self.length


def work_of(document: JobDocument, *, on_cpu: bool) -> Work:
    """Raises NotEstimated."""
    framework, training_type = trainer(document)
    if document.kind != TRAINING:
        raise NotEstimated(f"a job of kind {document.kind} trains nothing")
    if framework == CUSTOM:
        raise NotEstimated("a script of one's own decides itself what it loads")
    training, data = document.training_config, document.data_config
    try:
        values = parse(framework, training_type, training.hyperparameters)
    except (InvalidHyperparameter, KeyError) as error:
        raise NotEstimated("the hyperparameters are not valid") from error
    method = rlhf.method_of(training_type, values)
    completes = rlhf.completes(values)
    adapter = _adapter(training_type, values)
    packed = bool(values.get("packing")) or training_type == "CONTINUED_PRETRAIN"
    attention = training.base_model.model_kwargs.get("attn_implementation")
    batch = data.batch_size
    return Work(
        framework=framework,
        method=method,
        sequences=2 * batch if method in (DPO, rlhf.REWARD_METHOD) else batch,
        length=_length(values, data.max_seq_length),
        accumulates=data.gradient_accumulation_steps > 1,
        checkpointing=bool(values.get("gradient_checkpointing")),
        optimizer=str(values.get("optim") or "adamw_torch_fused"),
        adapter=adapter,
        quantized=training_type == QLORA,
        double_quantized=bool(values.get("bnb_4bit_use_double_quant")),
        has_reference=adapter is None and (method == DPO or (completes and bool(values.get("beta")))),
        full_logits=bool(values.get("label_smoothing_factor")) or framework == "MEGATRON",
        scores=method == rlhf.REWARD_METHOD,
        generated=batch * data.gradient_accumulation_steps if completes else 0,
        has_reward_model=completes and bool(values.get(rlhf.REWARD_MODEL)),
        attention=attention if isinstance(attention, str) else None,
        numerics=numerics(training.base_model.dtype, on_cpu=on_cpu),
        is_of_that_length=packed or data.preprocess.padding == "max_length",
    )


def _adapter(training_type: str, values: dict[str, Value]) -> Adapter | None:
    if training_type not in (LORA, QLORA) and not values.get(USE_LORA):
        return None
    return Adapter(
        rank=_whole(values, "lora_r"),
        targets=frozenset(names(str(values.get("lora_target_modules") or ALL_LINEAR))),
        dropout=float(values.get("lora_dropout") or 0.0),
        whole=frozenset(names(str(values.get("modules_to_save") or ""))),
    )


def _length(values: dict[str, Value], most: int) -> int:
    if not rlhf.completes(values):
        return most
    return rlhf.longest_prompt(values, most) + _whole(values, "max_completion_length")


def _whole(values: dict[str, Value], name: str) -> int:
    return int(values.get(name) or 0)
