"""Vectors of texts, and how a model's own files say that they are made."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import PreTrainedModel

from app.domain.spec.inference import InferenceTask
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.batches import answered, padded, token_budget
from workers.trainers.inference.engine.interface import Pooling, TokenIds

Vector = NDArray[np.float32]
MEAN, LAST, CLS, MAX, NONE = "mean", "last", "cls", "max", "none"  # Pooling.kind
POOLINGS = (MEAN, LAST, CLS, MAX, NONE)
LAST_LAYER = -1

# Of the folders of sentence-transformers: its modules, and the files of two of them.
_MODULES, _POOLING, _LENGTH = "modules.json", "config.json", "sentence_bert_config.json"
_MODES = {
    "pooling_mode_cls_token": CLS,
    "pooling_mode_max_tokens": MAX,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_lasttoken": LAST,
}


def chosen_pooling(task: InferenceTask, directory: Path) -> Pooling:
    """The pooling that the task asks for; what it leaves out is as the model's folder says, else mean, not normalized.

    Raises InvalidConfig.
    """
    own = Pooling() if task.pooling is not None and task.normalize is not None else own_pooling(directory)
    return Pooling(
        kind=own.kind if task.pooling is None else task.pooling,
        layer=task.layer,
        normalize=own.normalize if task.normalize is None else task.normalize,
    )


def own_pooling(directory: Path) -> Pooling:
    """What a folder of sentence-transformers says; the defaults for other models. Raises InvalidConfig."""
    kind, normalize = MEAN, False
    for module in _modules(directory / _MODULES):
        name = str(module.get("type", "")).rpartition(".")[2]
        if name == "Pooling":
            kind = _mode(_object(directory / str(module.get("path", "")) / _POOLING))
        elif name == "Normalize":
            normalize = True
        elif name not in ("Transformer", "Dropout"):
            raise InvalidConfig(
                f"task: the model's {_MODULES} has a module {name}, which is not supported; name task.pooling and "
                "task.normalize to leave it out"
            )
    return Pooling(kind=kind, normalize=normalize)


def own_length(directory: Path) -> int | None:
    """Most tokens of a text, if a folder of sentence-transformers limits them."""
    found = _object(directory / _LENGTH).get("max_seq_length")
    return found if isinstance(found, int) else None


def _mode(config: dict[str, object]) -> str:
    """Its flags name one kind; newer versions name it directly."""
    modes = {mode for name, mode in _MODES.items() if config.get(name)}
    if isinstance(named := config.get("pooling_mode"), str):
        modes.add({"lasttoken": LAST}.get(named, named))
    if len(modes) > 1 or not modes <= set(_MODES.values()):
        raise InvalidConfig(
            f"task: the model pools by {', '.join(sorted(map(str, modes)))}, which is not supported; name one of "
            f"{', '.join(POOLINGS)} as task.pooling"
        )
    return next(iter(modes), MEAN)


def _modules(path: Path) -> list[dict[str, object]]:
    found = _json(path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _object(path: Path) -> dict[str, object]:
    found = _json(path)
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> object:
    """None where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidConfig(f"task: the model's {path.name} is no JSON: {error}") from error


class Embedder:
    """Computes vectors in padded batches."""

    def __init__(self, model: PreTrainedModel, padding: int) -> None:
        body: Any = model
        self._model = body
        # A head is not needed for vectors, and its logits may take more memory than all else.
        self._body = getattr(model, model.base_model_prefix, body)
        self._padding = padding
        self._budget = token_budget(model, logits=False)

    def __call__(self, texts: Sequence[TokenIds], pooling: Pooling, interrupted: Callable[[], bool]) -> list[Vector]:
        self._check(pooling)
        return answered(
            texts, self._budget, lambda group: self._batch([texts[index] for index in group], pooling), interrupted
        )

    def _check(self, pooling: Pooling) -> None:
        if pooling.kind not in POOLINGS:
            raise InvalidConfig(f"task.pooling {pooling.kind!r} is not one of {', '.join(POOLINGS)}")
        layers = int(self._model.config.get_text_config().num_hidden_layers)
        if not -layers - 1 <= pooling.layer <= layers:
            raise InvalidConfig(
                f"task.layer {pooling.layer} is not one of the model's: 0 (the embeddings) to {layers}, or "
                f"-1 (the last one) to {-layers - 1}"
            )

    def _batch(self, texts: Sequence[TokenIds], pooling: Pooling) -> list[Vector]:
        ids, mask = padded(texts, self._padding, self._model.device)
        inner = pooling.layer != LAST_LAYER
        found = self._body(input_ids=ids, attention_mask=mask, output_hidden_states=inner)
        states = found.hidden_states[pooling.layer] if inner else found.last_hidden_state
        if pooling.kind == NONE:
            rows = [states[row, : len(tokens)].float() for row, tokens in enumerate(texts)]
        else:
            rows = list(_POOLED[pooling.kind](states.float(), mask.bool()))
        return [_vector(row, normalize=pooling.normalize) for row in rows]


def _vector(states: torch.Tensor, *, normalize: bool) -> Vector:
    # A copy: the row alone, not the batch that it is a part of.
    return np.array((functional.normalize(states, dim=-1) if normalize else states).cpu().numpy(), dtype=np.float32)


def _mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)


def _max(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(dim=1)


def _last(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states[torch.arange(len(states), device=states.device), mask.sum(dim=1) - 1]


def _first(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # noqa: ARG001  (all have one signature)
    return states[:, 0]


_POOLED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    MEAN: _mean,
    MAX: _max,
    LAST: _last,
    CLS: _first,
}
