"""The memory estimate: bytes of device memory for a training, from its document and its model's configuration."""
