"""Continued pre-training of all weights on plain text, packed into blocks of one length."""

from workers.trainers.hf_trainer.methods.sft import SupervisedTrainer


class PretrainingTrainer(SupervisedTrainer):
    """Learns every token of every block; how well is told as perplexity, too."""

    measures_perplexity = True
