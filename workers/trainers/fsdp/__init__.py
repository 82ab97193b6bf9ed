"""FSDP2: shards every layer across ranks, and gathers a layer only while it is computed."""
