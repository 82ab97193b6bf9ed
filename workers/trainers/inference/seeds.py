"""Seeds of answers."""

import hashlib


def sample_seed(seed: int, index: int, sample: int) -> int:
    """The seed of one of a record's answers: different for each, and the same in every attempt."""
    digest = hashlib.sha256(f"{seed}/{index}/{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # torch takes 63 bits
