"""The interactive section of a job document: ports of its processes, readiness, a notebook, what a failure leaves."""

from dataclasses import dataclass

from app.domain.spec.section import Section

HTTP, TCP = "http", "tcp"  # Port.protocol
PROTOCOLS = (HTTP, TCP)
NOTEBOOK_PORT = "notebook"  # the name of the port on which the notebook server of a job listens


@dataclass(frozen=True, kw_only=True)
class Port(Section):
    """A TCP port on which a process of the job listens in its sandbox.

    ``keep_prefix``: requests arrive with the prefix of the path that the gateway serves the port under. Without
    authorized users and groups every key that may see the job may open it. Of a job with roles it is on the node of
    the instance ``index`` of ``role``, or of rank 0.
    """

    name: str = ""
    port: int = 0
    protocol: str = HTTP
    keep_prefix: bool = False
    authorized_users: tuple[str, ...] = ()
    authorized_groups: tuple[str, ...] = ()
    role: str | None = None
    index: int = 0

    @property
    def forwarding(self) -> str:
        """What `trainyard port-forward` takes for it: the name leads to its instance, a number to rank 0's node."""
        return self.name if self.role else f"{self.port}:{self.port}"


NOTEBOOK = Port(name=NOTEBOOK_PORT, keep_prefix=True)


@dataclass(frozen=True, kw_only=True)
class ReadinessProbe(Section):
    """How the node asks a job whether it is ready: an HTTP request, or a connection where ``path`` is none.

    It is ready after so many successes in a row, and no longer after so many failures in a row.
    """

    port: int = 0
    path: str | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


@dataclass(frozen=True, kw_only=True)
class InteractiveConfig(Section):
    """``notebook``: the node starts JupyterLab beside the script, from the job's packages or image. ``terminal``: the
    output of each rank is a terminal instead of a pipe.
    """

    ports: tuple[Port, ...] = ()
    readiness_probe: ReadinessProbe | None = None
    notebook: bool = False
    terminal: bool = False
    keep_on_failure_seconds: int = 0  # how long sandbox and devices stay after the script has failed

    @property
    def probed(self) -> Port | None:
        """The port that the readiness probe asks, whose instance says where; None: one that is not among the ports."""
        probe = self.readiness_probe
        return None if probe is None else next((port for port in self.ports if port.port == probe.port), None)

    @property
    def all_ports(self) -> tuple[Port, ...]:
        """With that of the notebook, whose number is the session server's to choose."""
        return (*self.ports, NOTEBOOK) if self.notebook else self.ports


NOT_INTERACTIVE = InteractiveConfig()
