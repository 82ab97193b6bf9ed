"""What each probe is expected to meet on each kind of node: nothing, unless a reason stands here."""

from importlib import import_module
from pathlib import Path

from tests.sandbox.probes.attack import SUBJECTS
from tests.sandbox.probes.probing import BLOCKED, PROBES, REACHED

# A worker as root, with control groups; the same with jobs in images; a worker as an ordinary user, without them.
FULL, IMAGE, NAMESPACES = RUNGS = ("full", "image", "namespaces")

for _subject in SUBJECTS:
    import_module(f"tests.sandbox.probes.{_subject}")
NUMBERS = range(1, 79)
assert sorted(PROBES) == list(NUMBERS)

# What a job may have, and why it does no harm.
ALLOWED = {
    38: "the kernel's configuration and command line name no secret, and every container reads them",
    65: "it listens in its own network, where nothing but the job can connect; a port of the system is refused",
}
ALLOWED_ON = {
    (IMAGE, 16): "the root is an overlay of the attempt, which ends with it",
    (NAMESPACES, 70): "without control groups a node has no limit of memory, and says so: no capability `limits`",
    (NAMESPACES, 75): "nor one of processor time",
}

# Holes that are known and not yet mended. A test that passes nonetheless fails, so that it is taken out of here.
KNOWN: dict[int, str] = {}
KNOWN_ON = {
    (NAMESPACES, 13): "TRAINYARD_NODE_SOFTWARE, by default /opt, is shown with the private files of the worker's user"
}

# A probe that nothing has to stop on this machine proves nothing here.
UNPROVEN = {} if Path("/proc/sysrq-trigger").exists() else {37: "this kernel has no such file"}
# Probes that would change the machine's network or touch others' services, or need a network that leads somewhere: they
# run in one of their own.
ON_A_NETWORK = (59, 60, 66, 68)


def expected(rung: str, number: int) -> str:
    return REACHED if number in ALLOWED or (rung, number) in ALLOWED_ON else BLOCKED


def hole(rung: str, number: int) -> str:
    """Why a probe is known not to meet what it should; empty for most."""
    return KNOWN.get(number) or KNOWN_ON.get((rung, number), "")
