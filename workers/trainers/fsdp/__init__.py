"""FSDP2: each rank has a part of every layer, and all of a layer only while it computes it."""
