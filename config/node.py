"""Settings of nodes: what they offer to jobs, and how jobs are confined."""

from dataclasses import dataclass
from pathlib import Path

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    name: str = setting("", "this node's name; empty: the host name", rules.node_name)
    config: Path | None = setting(None, "node.toml with labels, capabilities, limits and declared devices")
    poll_seconds: float = setting(
        1.0, "how often a node polls for attempts dispatched to it without being woken", rules.poll_seconds
    )
    heartbeat_seconds: float = setting(2.0, "how often a node sends a heartbeat")
    lost_seconds: float = setting(8.0, "a node whose heartbeat counter has not changed for this long gets no new jobs")
    address: str = setting(
        "", "address at which ranks on other nodes reach those on this one; empty: the address used to reach the broker"
    )
    sandbox: str = setting(
        "auto",
        "auto: no jobs without bubblewrap; bubblewrap: no node without it; landlock: no namespaces, but a job reaches "
        "its own files alone; process: no sandbox",
        rules.sandbox,
    )
    sandbox_least: tuple[str, ...] = setting(
        (),
        "comma-separated capabilities without which this node accepts no jobs: sandbox:namespaces, sandbox:full, "
        "sandbox:uid, sandbox:locked",
        rules.isolation,
    )
    network: str = setting(
        "none", "network of jobs that run on one node: none (loopback only), or host (this machine's)", rules.network
    )
    software: tuple[Path, ...] = setting(
        (Path("/opt"),), "directories of programs that jobs may read, besides the system's and Trainyard's own"
    )
    uids: str = setting(
        "700000-765535",
        "host user IDs, of which a worker that is root gives each attempt one of its own; empty: all have the worker's",
        rules.user_ids,
    )
    pin_cores: bool = setting(
        False, "give each job that reserves cpu_cores cores of its own, on which it stays, as long as enough are free"
    )
    max_processes: int = setting(
        -1,
        "processes and threads of a job on this node at most, where limits hold and the job has no limit of its own; "
        "-1: 64 for each core of the node, or 256 for each rank of the job there if that is more; 0: no limit",
        rules.automatic_or_not_negative,
    )
    max_ram_mb: int = setting(
        0,
        "memory of a job's processes together at most, where limits hold and the job has no limit of its own; 0: no "
        "limit",
        rules.not_negative,
    )
    max_storage_mb: int = setting(
        0, "files of a job in its run directory at most, while it runs; 0: no limit", rules.not_negative
    )
    max_claim_mb: int = setting(
        0, "files of a volume claim at most, while a job may write to it; 0: no limit", rules.not_negative
    )
    warm: str = setting("auto", "what is forked for jobs: auto (all), supervisors, or off", rules.warm)
    keep_runs: bool = setting(False, "keep run directories after an attempt's end, for debugging")
