"""Which weights a service serves, as one text, however they are loaded: quantized ones have the same key."""

import hashlib

from app.domain.spec.inference import ModelReference
from app.domain.spec.model import BaseModel

LONGEST = 255  # characters of service.model_key


def model_key(base: BaseModel, reference: ModelReference) -> str:
    """The checkpoint or the job that has made the weights; else their location, with its revision."""
    made = reference.checkpoint_id or reference.job_id
    if made is not None:
        return made
    location = f"{base.model_id}@{base.revision}" if base.revision else base.model_id
    if len(location) <= LONGEST:
        return location
    return f"sha256:{hashlib.sha256(location.encode()).hexdigest()}"
