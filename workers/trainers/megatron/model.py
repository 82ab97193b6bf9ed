"""This rank's shard of a model with its optimizer: created from the base model, and gathered again for export."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer import MegatronModule, TransformerConfig
from transformers import PreTrainedModel, TrainingArguments

from app.domain.spec.frameworks.megatron import Parallelism
from workers.trainers.distributed import StepBoundary
from workers.trainers.failures import InvalidConfig
from workers.trainers.hf_trainer.checkpoints.description import Description, description
from workers.trainers.hf_trainer.model.pretrained import Precision
from workers.trainers.megatron.architecture import gpt, transformer_config
from workers.trainers.megatron.compatibility import check
from workers.trainers.megatron.layout import rank_position
from workers.trainers.megatron.weights import Shape, to_huggingface, to_megatron


@dataclass
class ModelShard:
    """One rank's shard of the model; `chunk` wraps it with its gradient buffers."""

    read: Callable[[], PreTrainedModel]  # loads the base model
    chunk: DistributedDataParallel
    optimizer: MegatronOptimizer
    shape: Shape
    stage: range
    layout: Parallelism
    description: Sequence[Description]

    @property
    def module(self) -> MegatronModule:
        """The weights alone, under the names of megatron.core."""
        module = self.chunk.module
        return getattr(module, "module", module)

    @property
    def torch_optimizer(self) -> torch.optim.Optimizer:
        """The inner optimizer that makes the steps, within Megatron's."""
        (chained,) = self.optimizer.chained_optimizers
        found: torch.optim.Optimizer = chained.optimizer
        return found


def shard_of(
    read: Callable[[], PreTrainedModel],
    layout: Parallelism,
    args: TrainingArguments,
    precision: Precision,
    max_length: int,
) -> ModelShard:
    """This rank's shard of the model that `read` loads. Raises InvalidConfig and what `read` raises."""
    if precision.fp16:
        raise InvalidConfig("MEGATRON computes in float32 or bfloat16: set base_model.dtype to one of them, or to auto")
    bf16 = precision.bf16 or precision.weights is torch.bfloat16
    model = read()
    check(model.config, layout, max_length)
    vocabulary = len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    config = transformer_config(model.config, layout, bf16=bf16, recompute=bool(args.activation_checkpointing))
    module = gpt(model.config, config, layout, vocabulary)
    shape, here = Shape.of(model.config, vocabulary), rank_position()
    layers = shape.layers // layout.pipeline
    stage = range(here.pipeline * layers, (here.pipeline + 1) * layers)
    own = to_megatron(model.state_dict(), shape, here.tensor, layout.tensor, stage)
    module.load_state_dict(own, strict=False)
    chunk = _with_gradients(module, config, bf16=bf16)
    return ModelShard(read, chunk, _optimizer(chunk, args, bf16=bf16), shape, stage, layout, description(model))


def whole(part: ModelShard, boundary: StepBoundary) -> PreTrainedModel | None:
    """The full model with the weights of all ranks, on rank 0; collective."""
    here = rank_position()
    own: dict[str, torch.Tensor] = {}
    if here.data == 0:
        own = {name: tensor.detach().cpu() for name, tensor in part.module.named_parameters()}
    found = boundary.gather((part.stage.start, here.tensor, own))
    stages: dict[int, dict[int, dict[str, torch.Tensor]]] = {}
    for start, tensor, shard in found:
        if shard:
            stages.setdefault(start, {})[tensor] = shard
    if not stages:
        return None
    model = part.read()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for start, shards in stages.items():
            stage = range(start, start + len(part.stage))
            for name, joined in to_huggingface([shards[rank] for rank in sorted(shards)], part.shape, stage).items():
                parameters[name].copy_(joined)
    return model


def _with_gradients(module: MegatronModule, config: TransformerConfig, *, bf16: bool) -> DistributedDataParallel:
    module.cuda()
    if bf16:
        module.bfloat16()
    chunk = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=bf16), module)
    config.finalize_model_grads_func = finalize_model_grads
    return chunk


def _optimizer(chunk: DistributedDataParallel, args: TrainingArguments, *, bf16: bool) -> MegatronOptimizer:
    """AdamW as in HF_TRAINER: no weight decay of biases and norms."""
    config = OptimizerConfig(
        optimizer="adam",
        lr=args.learning_rate,
        weight_decay=args.weight_decay,
        adam_beta1=args.adam_beta1,
        adam_beta2=args.adam_beta2,
        adam_eps=args.adam_epsilon,
        clip_grad=args.max_grad_norm,
        bf16=bf16,
        params_dtype=torch.bfloat16 if bf16 else torch.float32,
    )
    optimizer = get_megatron_optimizer(config, [chunk])
    for group in optimizer.param_groups:
        # Megatron expects its own scheduler to apply these.
        group["weight_decay"] = args.weight_decay * group["wd_mult"]
    return optimizer
