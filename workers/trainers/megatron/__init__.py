"""Training with megatron-core, which shards a model's layers and the tensors in them across ranks."""
