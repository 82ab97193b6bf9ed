"""Trainings with megatron-core, which divides a model's layers, and the tensors in them, among ranks."""
