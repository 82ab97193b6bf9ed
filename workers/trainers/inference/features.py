"""Features: vectors of records, in the same shards; a file beside them says how they were made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.trainers.inference.batch import BatchTrainer
from workers.trainers.inference.parts import OutputPart
from workers.trainers.inference.pooling import pooling_of
from workers.trainers.inference.section import inference_of

NAME = "meta.json"


class FeaturesTrainer(BatchTrainer):
    """As a batch, with `meta.json`."""

    def describe(self, output: Path, parts: Sequence[OutputPart], model: Mapping[str, Any]) -> None:
        task, pooling = inference_of(self.context.spec).task, pooling_of(self.context.spec)
        document = {
            "model": model,
            "pooling": pooling.kind,
            "layer": pooling.layer,
            "normalize": pooling.normalize,
            "dimension": next((part.dimension for part in parts if part.dimension is not None), None),
            "dtype": task.dtype,
            "max_tokens": task.max_tokens,
            "truncate": task.truncate,
        }
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        (output / NAME).write_text(text, encoding="utf-8")
