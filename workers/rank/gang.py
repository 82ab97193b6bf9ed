"""What a spec.json says of the ranks of its node; an attempt on one node has nothing to say. Standard library only."""

from collections.abc import Mapping
from typing import Any

Spec = Mapping[str, Any]


def local_ranks(spec: Spec) -> int:
    """How many ranks run on this node."""
    gang = spec.get("gang")
    return int(gang["local_ranks"] if gang else spec["world_size"])


def node_rank(spec: Spec) -> int:
    gang = spec.get("gang")
    return int(gang["node_rank"]) if gang else 0


def nodes(spec: Spec) -> int:
    """On how many the attempt runs."""
    gang = spec.get("gang")
    return int(gang["nodes"]) if gang else 1


def first_rank(spec: Spec) -> int:
    """Of those on this node."""
    return node_rank(spec) * local_ranks(spec)


def meeting_point(spec: Spec) -> tuple[str, int] | None:
    """Where rank 0 listens; None on one node, where any free port does."""
    gang = spec.get("gang")
    return (str(gang["address"]), int(gang["port"])) if gang else None


def network_settings(spec: Spec) -> dict[str, str]:
    """Else gloo takes the address that the host's name has, which on many machines is one of the loopback."""
    interface = (spec.get("gang") or {}).get("interface")
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
