"""The number formats that built-in trainers use, by device and `base_model.dtype`: see `workers.trainers.hf_trainer`.

Micikevicius et al., Mixed Precision Training, 2018 (arXiv:1710.03740), describes the float32 copies of weights.
"""

from dataclasses import dataclass

_BFLOAT16, _FLOAT32 = ("bfloat16", "bf16"), ("float32", "fp32")


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """Bytes of a number. ``casts``: autocast computes in fewer bytes than the weights and the residuals have."""

    weights: int
    compute: int
    on_cpu: bool

    @property
    def casts(self) -> bool:
        return self.compute < self.weights

    @property
    def residual(self) -> int:
        return self.weights


def numerics(dtype: str, *, on_cpu: bool) -> Numerics:
    """As `precision` of the trainers, on a GPU that computes in bfloat16."""
    asked = dtype.removeprefix("torch.")
    weights = 2 if asked in _BFLOAT16 else 4
    return Numerics(weights=weights, compute=weights if on_cpu or asked in _FLOAT32 else 2, on_cpu=on_cpu)
