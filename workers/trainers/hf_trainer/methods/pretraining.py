"""Continued pre-training of all weights on plain text, packed into fixed-length blocks."""

from workers.trainers.hf_trainer.methods.sft import SupervisedTrainer


class PretrainingTrainer(SupervisedTrainer):
    """Trains on every token of every block and also reports perplexity."""

    measures_perplexity = True
