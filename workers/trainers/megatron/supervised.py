"""Supervised fine-tuning and continued pre-training of all weights with Megatron, on one or more devices."""

from functools import partial

from transformers import PreTrainedTokenizerBase, TrainingArguments

from workers.rank.run_context import Result, RunContext
from workers.trainers.data.datasets import Splits
from workers.trainers.hf_trainer.loop.arguments import arguments
from workers.trainers.hf_trainer.loop.collator import max_seq_length
from workers.trainers.hf_trainer.loop.training import Training
from workers.trainers.hf_trainer.model.pretrained import precision
from workers.trainers.megatron.batches import GroupData
from workers.trainers.megatron.compatibility import requested_layout
from workers.trainers.megatron.cpu import cuda_or_cpu
from workers.trainers.megatron.layout import divided, join_alone, rank_position
from workers.trainers.megatron.loop import MegatronLoop
from workers.trainers.megatron.model import shard_of
from workers.trainers.megatron.saving import MegatronCheckpointSaver


class MegatronTrainer(Training):
    """Trains on the tokens of records, or on every token of every block, like HF_TRAINER."""

    saving: MegatronCheckpointSaver

    def __init__(self, context: RunContext) -> None:
        self.layout = requested_layout(context.spec)
        join_alone(context.spec)
        super().__init__(context)

    @property
    def devices(self) -> int:
        """Number of model replicas."""
        return self.layout.data

    def run(self) -> Result:
        with cuda_or_cpu(), divided(self.context.spec, self.layout):
            return super().run()

    def make_saving(self) -> MegatronCheckpointSaver:
        return MegatronCheckpointSaver(self.context, self.boundary)

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> MegatronLoop:
        spec = self.context.spec
        args = TrainingArguments(**arguments(self.context, self.plan, validates=splits.validation is not None))
        read = partial(self.weights.load_base, tokenizer)
        part = shard_of(read, self.layout, args, precision(spec), max_seq_length(spec))
        data = GroupData(spec, self.plan, splits, tokenizer, group=rank_position().data)
        return MegatronLoop(self.context, self.boundary, self.saving, part, data, args, self.callbacks)
