"""Users of Redis for each of our processes, with the keys, channels and commands that it uses and no others.

The rules follow what Celery's transport, its events and its remote control do on the connections of each process. They
need Redis 7 or Valkey, where a user may have several sets of permissions; each command must fit one of them as a whole.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from app.services.operations.data_dir import replace_secret
from config.queues import NODE, NODE_TYPES_PREFIX, PRIORITY_SEPARATOR, node_message_keys, worker_hostname
from config.values.rules import node_name

ADMIN, API, COORDINATOR, FLOWER = "admin", "api", "coordinator", "flower"
USERS_FILE = "users.acl"

_PIDBOX, _EVENTS, _RESULTS = "/0.celery.pidbox", "/0.celeryev/*", "celery-task-meta-*"
_CONNECTION = "+hello +auth +ping +echo +quit +reset +select"
# CLIENT SETINFO, which clients send, can't be named to Redis 7.0, which lacks it.
_CLIENT = "+client -client|kill -client|list -client|pause -client|unpause -client|unblock -client|no-evict"
_TRANSACTIONS = "+multi +exec +discard +watch +unwatch"
_LISTEN = "+subscribe +psubscribe +unsubscribe +punsubscribe"
_LISTS = "+brpop +rpop +lpush +rpush +llen +del +exists +pexpire"
_UNACKNOWLEDGED = "+hset +hget +hdel +hlen +zadd +zrem +zrange +zrangebyscore"
_SETS = "+sadd +srem +smembers"
# Of scripts of ours and of the client library, with what these call.
_SCRIPTS = "+evalsha +script|load +script|exists +time"


class RedisUsersError(ValueError):
    """The users cannot be described; the message says what to change."""


def write_users(directory: Path, nodes: Sequence[str], *, address: str) -> list[Path]:
    """Write the server's ACL file, and for each user a file with its broker URL; returns the files with URLs.

    A user whose URL is there already keeps its password. ``address`` is the server's URL without user and password.
    Raises RedisUsersError, and OSError.
    """
    _check(nodes, address)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = {name: directory / f"{name}.url" for name in (ADMIN, API, COORDINATOR, FLOWER, *map(node_user, nodes))}
    passwords = {name: _password(path) or secrets.token_urlsafe(24) for name, path in files.items()}
    for name, path in files.items():
        replace_secret(path, _url(address, name, passwords[name]) + "\n")
    replace_secret(directory / USERS_FILE, acl_file(passwords, nodes))
    return list(files.values())


def node_user(node: str) -> str:
    return f"node-{node}"


def acl_file(passwords: Mapping[str, str], nodes: Iterable[str]) -> str:
    """The text of the file: one user per line, with the hash of its password. The default user is off."""
    rules = {ADMIN: "~* &* +@all", API: _api(), COORDINATOR: _coordinator(), FLOWER: _flower()}
    rules |= {node_user(node): _node(node) for node in nodes}
    lines = ["user default off resetpass resetkeys resetchannels -@all"]
    for name, rule in rules.items():
        digest = hashlib.sha256(passwords[name].encode()).hexdigest()
        lines.append(f"user {name} on #{digest} resetkeys resetchannels -@all {rule}")
    return "\n".join(lines) + "\n"


def _api() -> str:
    """Announces jobs and control requests, and counts requests of keys."""
    return " ".join(
        (
            f"{_CONNECTION} {_CLIENT} {_TRANSACTIONS} +info",
            "(+lpush +llen ~jobs.*)",
            f"({_SETS} ~_kombu.binding.* ~_kombu.binding_permanent.*)",
            f"(+publish &{_PIDBOX})",
            f"({_SCRIPTS} +hmget +hset +pexpire ~trainyard:rate:*)",
        )
    )


def _coordinator() -> str:
    """Reads admissions, announces attempts to nodes, mirrors results, answers remote control."""
    unacknowledged = "~unacked ~unacked_index ~unacked_mutex"
    return " ".join(
        (
            f"{_CONNECTION} {_CLIENT} {_TRANSACTIONS} {_SCRIPTS} {_LISTEN} +info +publish",
            f"{_LISTS} {_UNACKNOWLEDGED} {_SETS} +set +get",
            f"~jobs.* {unacknowledged} ~_kombu.binding* ~{_RESULTS} ~trainyard:mirror",
            f"~{COORDINATOR}@*.celery.pidbox*",
            f"&{_PIDBOX} &{_EVENTS} &{_RESULTS}",
            f"(+lpush +llen ~cpu.* ~{NODE_TYPES_PREFIX}* ~*.reply.celery.pidbox*)",
        )
    )


def _flower() -> str:
    """Reads events, results and lengths of queues, and asks workers."""
    return " ".join(
        (
            f"{_CONNECTION} {_CLIENT} {_TRANSACTIONS} {_SCRIPTS} {_LISTEN} +info +publish",
            f"&{_PIDBOX} &{_EVENTS} &{_RESULTS}",
            f"{_LISTS} {_UNACKNOWLEDGED} {_SETS} +set +get",
            "~_kombu.binding* ~unacked* ~*.reply.celery.pidbox* ~celeryev.*",
            f"(+get +mget ~{_RESULTS})",
            f"(+llen ~jobs.* ~cpu.* ~{NODE_TYPES_PREFIX}*)",
        )
    )


def _node(node: str) -> str:
    """Reads its own queues and remote control, and sends events and answers. It runs no scripts."""
    queues = [f"cpu.{node}", f"{NODE_TYPES_PREFIX}*.{node}"]
    keys = [*queues, *(f"{queue}{PRIORITY_SEPARATOR}?" for queue in queues), *node_message_keys(node).values()]
    keys.append(f"{worker_hostname(NODE, node)}.celery.pidbox*")
    return " ".join(
        (
            f"{_CONNECTION} {_CLIENT} {_TRANSACTIONS} {_LISTEN} &{_PIDBOX}",
            f"{_LISTS} {_UNACKNOWLEDGED} {' '.join(f'~{key}' for key in keys)}",
            # Its own entry; replies are sent to where this table says.
            "(+sadd +srem +smembers ~_kombu.binding.celery.pidbox ~_kombu.binding_permanent.celery.pidbox)",
            "(+sadd ~_kombu.binding.unrouted ~_kombu.binding_permanent.unrouted)",
            "(+smembers %R~_kombu.binding.reply.celery.pidbox)",
            "(+lpush ~*.reply.celery.pidbox*)",
            f"(+publish &{_EVENTS})",
        )
    )


def _check(nodes: Sequence[str], address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or "@" in parts.netloc:
        raise RedisUsersError("the address must be redis://HOST:PORT/0 or rediss://…, without user and password")
    if parts.path not in ("", "/", "/0"):
        raise RedisUsersError(f"the rules are for database 0 of Redis, not {parts.path.removeprefix('/')}: end with /0")
    for node in nodes:
        try:
            node_name(node)
        except ValueError as error:
            raise RedisUsersError(f"node {node!r}: {error}") from error
        for other in nodes:
            # The type of a node's devices is unknown here, and may have dots, as names may.
            if other.endswith(f".{node}"):
                raise RedisUsersError(f"node {node} could read messages for {other}: rename one, without that ending")
    if len(set(nodes)) != len(nodes):
        raise RedisUsersError("a node is named twice")


def _password(path: Path) -> str | None:
    if not path.exists():
        return None
    return unquote(urlsplit(path.read_text().strip()).password or "") or None


def _url(address: str, user: str, password: str) -> str:
    return re.sub(r"^(rediss?://)", rf"\g<1>{quote(user)}:{quote(password)}@", address)
