"""Celery's Redis transport, which drops messages that `message_rules` does not accept before Celery sees them.

Checked is what the client library returns, so that the transport finds nothing where a defective message was.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import redis
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis
from redis.client import PubSub

from tasks.message_rules import Defect, check_command, check_task

# Of one queue and reason, these many lines; from then on one for each doubling, so that a flood does not fill a disk.
FIRST_LOGGED = 10
_MOST_COUNTERS = 1000

logger = logging.getLogger(__name__)
rejected: Counter[tuple[str, str]] = Counter()  # (queue or channel, reason) → messages that this process dropped


def install(**_: object) -> None:
    """Make Celery of this process use it, for all URLs of Redis; call before Celery has looked its transport up."""
    TRANSPORT_ALIASES.update(
        {
            "redis": f"{__name__}:CheckedTransport",
            "rediss": f"{__name__}:CheckedTransport",
            "sentinel": f"{__name__}:CheckedSentinelTransport",
        }
    )


class CheckedClient(redis.Redis):
    """Returns no list element, and no publication, that is no message."""

    def parse_response(self, connection: redis.Connection, command_name: str, **options: object) -> Any:  # noqa: ANN401  as redis-py
        reply = super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]  # redis-py's
        if command_name != "BRPOP" or not reply:
            return reply
        key, content = reply
        queue = _text(key).partition(kombu_redis.Channel.sep)[0]
        return reply if _accepted(queue, lambda: check_task(content, queue)) else None

    def pubsub(self, **options: Any) -> PubSub:
        return _CheckedPubSub(self.connection_pool, **options)


class _CheckedPubSub(PubSub):
    def parse_response(self, block: bool = True, timeout: float = 0) -> Any:  # noqa: ANN401, FBT001, FBT002  as redis-py
        reply = super().parse_response(block, timeout)  # type: ignore[no-untyped-call]  # redis-py's
        if not isinstance(reply, list | tuple) or reply[0] not in (b"message", b"pmessage"):
            return reply
        channel, content = reply[-2:]
        return reply if _accepted(_text(channel), lambda: check_command(content)) else None


class _QoS(kombu_redis.QoS):
    def restore_visible(self, start: int = 0, num: int | None = 10, interval: int = 10) -> None:
        """Without the lock, whose release is a script, where no other process reads the same messages."""
        if not self.channel.only_reader:
            super().restore_visible(start, num, interval)  # type: ignore[no-untyped-call]  # kombu's
            return
        with self.channel.conn_or_acquire() as client:
            latest = time.time() - self.visibility_timeout
            for tag in client.zrangebyscore(self.unacked_index_key, 0, latest):
                self.restore_by_tag(tag, client)

    def restore_by_tag(self, tag: bytes, client: Any = None, leftmost: bool = False) -> None:  # noqa: ANN401, FBT001, FBT002  as kombu
        """Put an unacknowledged message back into its queue; what is no message is dropped."""
        try:
            super().restore_by_tag(tag, client, leftmost)  # type: ignore[no-untyped-call]  # kombu's
        except (ValueError, TypeError, RecursionError) as error:
            self._remove_from_indices(tag).execute()  # type: ignore[no-untyped-call]  # kombu's
            _note(self.unacked_key, f"{type(error).__name__} when it was to be put back")


class CheckedChannel(kombu_redis.Channel):
    QoS = _QoS
    only_reader = False
    from_transport_options: tuple[str, ...] = (*kombu_redis.Channel.from_transport_options, "only_reader")  # type: ignore[assignment]  # kombu's is shorter

    def _get_client(self) -> type[redis.Redis]:
        return CheckedClient


class CheckedTransport(kombu_redis.Transport):
    Channel = CheckedChannel


class CheckedSentinelChannel(kombu_redis.SentinelChannel):
    QoS = _QoS
    only_reader = False
    from_transport_options: tuple[str, ...] = (*kombu_redis.SentinelChannel.from_transport_options, "only_reader")  # type: ignore[assignment]  # kombu's is shorter

    def _get_client(self) -> type[redis.Redis]:
        return CheckedClient


class CheckedSentinelTransport(kombu_redis.SentinelTransport):
    Channel = CheckedSentinelChannel


def _accepted(origin: str, check: Callable[[], None]) -> bool:
    try:
        check()
    except Defect as defect:
        _note(origin, str(defect))
        return False
    return True


def _note(origin: str, reason: str) -> None:
    key = (origin, reason)
    if key not in rejected and len(rejected) >= _MOST_COUNTERS:  # reasons quote what senders choose
        key = (origin, "others")
    rejected[key] += 1
    count = rejected[key]
    if count <= FIRST_LOGGED or count & (count - 1) == 0:
        logger.warning("rejected a message of %s: %s (%d of this kind)", origin, reason, count)


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
