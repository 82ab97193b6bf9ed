"""Queue names, broker options and the command lines of all Celery processes."""

import socket
import sys
from collections.abc import Collection
from typing import Any, Protocol

from config.settings import Settings, SettingsError

# Celery must have a default queue. It has no consumer, so a message sent without a queue name stays visible there.
UNROUTED_QUEUE = "unrouted"
ADMISSION_PREFIX = "jobs."
DEFAULT_ADMISSION_QUEUE = "jobs.default"

# All producers, workers and Flower must agree on these, or they do not see each other's messages. The separator of
# queue and priority is kombu's own, which `celery -b URL inspect` expects in the bindings of its replies.
PRIORITY_STEPS = list(range(10))

# A wake-up that is not consumed in this time has been superseded by polling.
MESSAGE_EXPIRES_SECONDS = 300
POOL_THREADS = 4

# kombu's own, between a queue and a priority in the key of a list.
PRIORITY_SEPARATOR = "\x06\x16"
# Of the queues of devices other than CPU slots.
NODE_TYPES_PREFIX = "gpu."

COORDINATOR = "coordinator"
NODE = "node"


def node_name(settings: Settings) -> str:
    """The name of this machine's node worker."""
    return settings.node.name or socket.gethostname()


def worker_hostname(role: str, name: str) -> str:
    """A worker's Celery name, derived from the node's name alone, so that every process can address a node."""
    return f"{role}@{name}"


def coordinator_prefix() -> str:
    """Prefix of the names of all coordinators on this machine; a suffix distinguishes them."""
    return worker_hostname(COORDINATOR, f"{socket.gethostname()}-")


def broker_url(settings: Settings) -> str:
    """The configured broker URL. Raises SettingsError when there is none; does not connect."""
    if not settings.broker.url:
        raise SettingsError(
            [f"no broker: set TRAINYARD_BROKER_URL, or start `trainyard up` on {settings.data.dir} first"]
        )
    return settings.broker.url


def celery_config(settings: Settings, *, publisher: bool = False) -> dict[str, Any]:
    """Celery's configuration; a ``publisher`` fails faster, because a caller waits. Raises SettingsError."""
    url = broker_url(settings)
    timeout = settings.broker.publish_timeout_seconds if publisher else settings.broker.socket_timeout_seconds
    return {
        "broker_url": url,
        "broker_transport_options": _transport_options(timeout, settings.broker.publish_timeout_seconds),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # the default gives up after 100
        # A full Redis, or a temporary replica, answers with an error, which by default ends the worker.
        "broker_channel_error_retry": True,
        "broker_connection_timeout": timeout,
        **_result_options(settings, url),
        **_WORKER_OPTIONS,
        **_TASK_OPTIONS,
    }


def node_message_keys(name: str) -> dict[str, str]:
    """Transport options: where a node keeps messages that it has read and not acknowledged, apart from all others."""
    return {
        "unacked_key": f"unacked.node.{name}",
        "unacked_index_key": f"unacked_index.node.{name}",
        "unacked_mutex_key": f"unacked_mutex.node.{name}",
    }


def node_options(settings: Settings) -> dict[str, Any]:
    """What a node's Celery configuration has beside `celery_config`: it runs no scripts in Redis."""
    own_keys = node_message_keys(node_name(settings))
    return {
        "broker_transport_options": {
            **_transport_options(settings.broker.socket_timeout_seconds, settings.broker.publish_timeout_seconds),
            **own_keys,
            "only_reader": True,
        },
        # Tables of queues that expire are kept by scripts.
        "control_queue_expires": None,
    }


class ConsumedQueues(Protocol):
    """The queues of a Celery application, ``app.amqp.queues``."""

    def add(self, queue: str) -> object: ...

    def select(self, include: Collection[str]) -> None: ...


def consume_only(queues: ConsumedQueues, names: Collection[str]) -> None:
    """Restrict the worker of an application to these queues; call before its consumer starts."""
    for name in names:
        queues.add(name)
    queues.select(names)


def worker_command(role: str) -> list[str]:
    """The command line of a worker with the role ``coordinator`` or ``node``.

    Not ``celery -A tasks.… worker``, although that works: it imports modules of the current directory in preference to
    ours, and takes 0.4 s more processor time.
    """
    return [sys.executable, "-m", f"tasks.{role}"]


def flower_command() -> list[str]:
    return [sys.executable, "-m", "tasks.flower"]


def _transport_options(timeout: float, connect_timeout: float) -> dict[str, Any]:
    return {
        # Tasks last seconds; messages that an ended worker left unacknowledged are redelivered after this time.
        "visibility_timeout": MESSAGE_EXPIRES_SECONDS,
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
        "priority_steps": PRIORITY_STEPS,
        "queue_order_strategy": "round_robin",
        # Without timeouts a connection whose peer vanished blocks the whole worker forever.
        "socket_timeout": timeout,
        "socket_connect_timeout": connect_timeout,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "max_connections": 50,
    }


def _result_options(settings: Settings, url: str) -> dict[str, Any]:
    # The backend only mirrors job states. The mirror must not block: it retries anyway.
    return {
        "result_backend": url,
        "result_expires": settings.broker.result_expires_seconds,
        "result_backend_always_retry": False,
        "result_backend_transport_options": {"retry_policy": {"max_retries": 0}, "global_keyprefix": ""},
        "redis_socket_timeout": settings.broker.publish_timeout_seconds,
        "redis_socket_connect_timeout": settings.broker.publish_timeout_seconds,
        "redis_socket_keepalive": True,
        "redis_backend_health_check_interval": 10,
        "redis_retry_on_timeout": False,
    }


_WORKER_OPTIONS: dict[str, Any] = {
    "worker_prefetch_multiplier": 1,
    "worker_send_task_events": True,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_enable_remote_control": True,
}

_TASK_OPTIONS: dict[str, Any] = {
    "task_default_queue": UNROUTED_QUEUE,
    "task_create_missing_queues": False,
    "task_default_priority": 5,  # a message without one would be served first
    "task_ignore_result": True,
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_publish_retry": True,
    "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0, "interval_max": 0.2},
    "task_send_sent_event": False,  # dispatch messages do not need a second message each
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "event_queue_ttl": 60,
    "event_queue_expires": 120,
    "timezone": "UTC",
    "enable_utc": True,
}
