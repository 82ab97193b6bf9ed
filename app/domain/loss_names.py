"""Which metric of a job is its training loss, for places that show one curve."""

from collections.abc import Collection

_PREFERRED = ("loss", "train_loss", "train/loss", "training_loss")
_OF_OTHER_DATA = ("eval", "val", "test")


def loss_of(names: Collection[str]) -> str | None:
    """The name of the training loss among these metrics; None where there is none."""
    for name in _PREFERRED:
        if name in names:
            return name
    losses = sorted(name for name in names if "loss" in name.lower())
    trained = [name for name in losses if not name.lower().startswith(_OF_OTHER_DATA)]
    return next(iter([*trained, *losses]), None)
