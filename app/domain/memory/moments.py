"""The moments of a training step at which memory can peak, with what lives at each.

Gradients grow while the backward pass frees activations, both by the same amount for each layer, so that a peak lies at
the beginning or the end of that pass, in the optimizer's step, or where completions are generated.
"""

from collections.abc import Iterator
from dataclasses import replace

from app.domain.memory import activations, head
from app.domain.memory.architecture import Architecture
from app.domain.memory.division import Division
from app.domain.memory.states import States

_FLOAT32 = 4
Parts = dict[str, int]


def moments(model: Architecture, states: States, division: Division) -> Iterator[Parts]:
    """Bytes by part at each moment of a step after the first."""
    moment = _Moment(model, states, division)
    yield from (moment.of_head(), moment.of_last_layer(), moment.of_first_layer(), moment.of_step())
    if division.work.generated:
        yield moment.of_generation()


def without_records(model: Architecture, states: States, division: Division) -> Parts:
    """What lives at the end of each step, however short the records were."""
    short = replace(division, work=replace(division.work, length=1, sequences=1))
    return _Moment(model, states, short).of_step()


class _Moment:
    def __init__(self, model: Architecture, states: States, division: Division) -> None:
        work = division.work
        self._model, self._states, self._division, self._work = model, states, division, work
        self._layer = activations.of_layer(model, work)
        self._head = head.of_head(model, work)
        self._layers = -(-model.layers // division.stages) * division.stages  # 1F1B: as many passes as stages
        size = division.gradient_size or states.trained_size
        self._gradients = int(states.trained * size * division.gradients)
        trains_head = work.adapter is None and not work.scores and not division.keeps_gradients
        self._head_gradient = int(model.embedding * size * division.gradients) if trains_head else 0

    def of_head(self) -> Parts:
        """The loss and its gradient, while all layers keep their activations."""
        gradients = self._before() + self._head_gradient
        return self._parts(gradients, self._kept(), head=self._head.kept + self._head.working)

    def of_last_layer(self) -> Parts:
        """The backward pass begins."""
        gradients = self._before() + self._head_gradient
        return self._parts(gradients, self._kept() + self._of_backward())

    def of_first_layer(self) -> Parts:
        """The backward pass ends: the embedding's gradient is dense, and is added to that of a head that shares it."""
        gradients = self._gradients + (self._head_gradient if self._model.tied or self._work.accumulates else 0)
        return self._parts(gradients, self._layer.kept * (not self._work.checkpointing) + self._of_backward())

    def of_step(self) -> Parts:
        return self._parts(self._gradients, 0, step=int(self._states.step * self._division.optimizer))

    def of_generation(self) -> Parts:
        """Keys and values of all completions; gradients do not exist yet."""
        work, model = self._work, self._model
        cache = 2 * model.layers * model.kv_width * work.numerics.residual * work.generated * work.length
        logits = 3 * work.generated * model.vocabulary * _FLOAT32
        return self._parts(0, 0, generation=cache + logits)

    def _before(self) -> int:
        """Gradients of earlier passes of the same step."""
        return self._gradients if self._work.accumulates or self._division.keeps_gradients else 0

    def _kept(self) -> int:
        of_one = self._layer.input if self._work.checkpointing else self._layer.kept // self._division.tensor
        return self._layers * of_one

    def _of_backward(self) -> int:
        again = self._layer.kept if self._work.checkpointing else 0
        return (again + self._layer.backward) // self._division.tensor

    def _parts(self, gradients: int, kept: int, **more: int) -> Parts:
        states, division, work = self._states, self._division, self._work
        master = states.trained * division.master
        return {
            "weights": int(states.weights * division.weights) + states.adapters,
            "reference": int(states.weights * division.reference) if work.has_reference else 0,
            "gradients": gradients,
            "optimizer": int((states.optimizer_of(division.master) + master) * division.optimizer),
            "activations": kept + self._casts() + states.dequantized,
            "gathered": division.live,
            "communication": division.buckets,
            **more,
        }

    def _casts(self) -> int:
        """Autocast keeps a copy of every weight in the format of computation until the backward pass."""
        work = self._work
        if not work.numerics.casts or work.checkpointing or work.quantized:
            return 0
        return self._model.in_linears * work.numerics.compute
