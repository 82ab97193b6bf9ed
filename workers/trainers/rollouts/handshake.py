"""Both ends of a connection prove that they know the attempt's secret, which itself is never sent."""

import hmac
import secrets
from typing import Any

from workers.trainers.rollouts.wire import Wire, WireClosed

READY = "ready"  # what a rollout says once its model is loaded, after a welcome that said it is not
SECONDS = 10.0  # for a whole handshake, however slowly the other side sends
_BYTES = 32
_MOST = 4096
_TRAINER, _ROLLOUT = b"trainer", b"rollout"  # what one side proves is no proof of the other


class NotTrusted(WireClosed):
    """The other side does not know the secret."""


def as_trainer(wire: Wire, secret: bytes) -> dict[str, Any]:
    """The side that connects; what the rollout says of itself. Raises OSError."""
    wire.limit_all(SECONDS)
    own = secrets.token_bytes(_BYTES)
    wire.send({"nonce": own.hex()})
    answer, _ = wire.receive(_MOST)
    nonces = own + _from_hex(answer, "nonce")
    if not hmac.compare_digest(_proof(secret, _ROLLOUT, nonces), _from_hex(answer, "proof")):
        raise NotTrusted("what listens there does not know the secret of this attempt")
    wire.send({"proof": _proof(secret, _TRAINER, nonces).hex()})
    welcome, _ = wire.receive(_MOST)
    wire.limit(None)
    return welcome


def as_rollout(wire: Wire, secret: bytes) -> None:
    """The side that listens; it says of itself what comes next. Raises OSError."""
    wire.limit_all(SECONDS)
    asked, _ = wire.receive(_MOST)
    own = secrets.token_bytes(_BYTES)
    nonces = _from_hex(asked, "nonce") + own
    wire.send({"nonce": own.hex(), "proof": _proof(secret, _ROLLOUT, nonces).hex()})
    answer, _ = wire.receive(_MOST)
    if not hmac.compare_digest(_proof(secret, _TRAINER, nonces), _from_hex(answer, "proof")):
        raise NotTrusted("what has connected does not know the secret of this attempt")


def _proof(secret: bytes, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret, side + nonces, "sha256")


def _from_hex(message: dict[str, Any], name: str) -> bytes:
    try:
        found = bytes.fromhex(message[name])
    except (KeyError, TypeError, ValueError) as error:
        raise WireClosed(f"a handshake without {name}") from error
    if len(found) != _BYTES:
        raise WireClosed(f"a handshake with a {name} of {len(found)} bytes")
    return found
