"""DeepSpeed ZeRO: shards the optimizer state, the gradients, or also the parameters across ranks."""
