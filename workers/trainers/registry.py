"""The trainer registry: one line per (framework, training type), or the method that `rlhf.method_of` derives from
it.
"""

import importlib

from app.domain.spec.frameworks.requirements import EXTRAS
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from workers.trainers.base import Trainer

TRAINERS: dict[tuple[str, str], str] = {
    ("HF_TRAINER", "SFT"): "workers.trainers.hf_trainer.methods.sft:SupervisedTrainer",
    ("HF_TRAINER", "FULL_FINETUNE"): "workers.trainers.hf_trainer.methods.sft:SupervisedTrainer",
    ("HF_TRAINER", "LORA"): "workers.trainers.hf_trainer.methods.lora:LoraTrainer",
    ("HF_TRAINER", "QLORA"): "workers.trainers.hf_trainer.methods.qlora:QloraTrainer",
    ("HF_TRAINER", "DPO"): "workers.trainers.hf_trainer.methods.dpo:DpoTrainer",
    ("HF_TRAINER", "RLHF"): "workers.trainers.hf_trainer.methods.rlhf:RlhfTrainer",
    ("HF_TRAINER", REWARD_METHOD): "workers.trainers.hf_trainer.methods.reward_modelling:RewardModelTrainer",
    ("HF_TRAINER", "CONTINUED_PRETRAIN"): "workers.trainers.hf_trainer.methods.pretraining:PretrainingTrainer",
    ("FSDP", "SFT"): "workers.trainers.hf_trainer.methods.sft:SupervisedTrainer",
    ("FSDP", "FULL_FINETUNE"): "workers.trainers.hf_trainer.methods.sft:SupervisedTrainer",
    ("FSDP", "LORA"): "workers.trainers.hf_trainer.methods.lora:LoraTrainer",
    ("FSDP", "DPO"): "workers.trainers.hf_trainer.methods.dpo:DpoTrainer",
    ("FSDP", "RLHF"): "workers.trainers.hf_trainer.methods.rlhf:RlhfTrainer",
    ("FSDP", REWARD_METHOD): "workers.trainers.hf_trainer.methods.reward_modelling:RewardModelTrainer",
    ("FSDP", "CONTINUED_PRETRAIN"): "workers.trainers.hf_trainer.methods.pretraining:PretrainingTrainer",
    ("DEEPSPEED", "SFT"): "workers.trainers.hf_trainer.methods.sft:SupervisedTrainer",
    ("DEEPSPEED", "FULL_FINETUNE"): "workers.trainers.hf_trainer.methods.sft:SupervisedTrainer",
    ("DEEPSPEED", "LORA"): "workers.trainers.hf_trainer.methods.lora:LoraTrainer",
    ("DEEPSPEED", "QLORA"): "workers.trainers.hf_trainer.methods.qlora:QloraTrainer",
    ("DEEPSPEED", "DPO"): "workers.trainers.hf_trainer.methods.dpo:DpoTrainer",
    ("DEEPSPEED", "RLHF"): "workers.trainers.hf_trainer.methods.rlhf:RlhfTrainer",
    ("DEEPSPEED", REWARD_METHOD): "workers.trainers.hf_trainer.methods.reward_modelling:RewardModelTrainer",
    ("DEEPSPEED", "CONTINUED_PRETRAIN"): "workers.trainers.hf_trainer.methods.pretraining:PretrainingTrainer",
    ("MEGATRON", "SFT"): "workers.trainers.megatron.supervised:MegatronTrainer",
    ("MEGATRON", "FULL_FINETUNE"): "workers.trainers.megatron.supervised:MegatronTrainer",
    ("MEGATRON", "CONTINUED_PRETRAIN"): "workers.trainers.megatron.supervised:MegatronTrainer",
}
# Jobs that train nothing: by their engine, and the type that their kind has.
INFERENCE: dict[tuple[str, str], str] = {
    ("TRANSFORMERS", "BATCH"): "workers.trainers.inference.batch:BatchTrainer",
    ("TRANSFORMERS", "FEATURES"): "workers.trainers.inference.features:FeaturesTrainer",
    ("TRANSFORMERS", "EVALUATION"): "workers.trainers.inference.evaluation.evaluating:EvaluationTrainer",
    ("TRANSFORMERS", "REPLICA"): "workers.trainers.inference.serving.trainer:ReplicaTrainer",
}


class UnknownTrainer(LookupError):
    """There is no built-in trainer for this pair."""


class MissingExtra(ImportError):
    """This machine lacks the trainer's dependencies."""


def load(framework: str, method: str) -> type[Trainer]:
    """The trainer's class; imports what it needs, and nothing of the others."""
    try:
        module, _, name = {**TRAINERS, **INFERENCE}[framework, method].partition(":")
    except KeyError:
        known = ", ".join("/".join(pair) for pair in sorted({**TRAINERS, **INFERENCE}))
        raise UnknownTrainer(f"no trainer for {framework}/{method}; known: {known}") from None
    extra = EXTRAS.get(framework)
    try:
        trainer: type[Trainer] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if extra is None or str(error.name).partition(".")[0] != extra.module.partition(".")[0]:
            raise
        raise MissingExtra(f"{framework} is not installed on this node: {extra.command}") from error
    return trainer
