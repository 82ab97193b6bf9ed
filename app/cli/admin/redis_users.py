"""`trainyard redis-users`: users of Redis for API, coordinator, Flower and nodes, with only what each needs."""

from pathlib import Path

import click


@click.command(name="redis-users")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--node", "nodes", metavar="NAME", multiple=True, help="A node worker; repeat it for each.")
@click.option(
    "--address",
    metavar="URL",
    default="redis://127.0.0.1:6379/0",
    show_default=True,
    help="Where the processes reach Redis, without user and password.",
)
def redis_users(directory: Path, nodes: tuple[str, ...], address: str) -> None:
    """Write users.acl for Redis, and a file with the broker URL of each process, into DIRECTORY.

    Name all nodes each time: nodes that are left out lose their user. Users keep their passwords; delete a user's file
    to give it another one. Then let Redis read the file again (ACL LOAD, as the user admin).
    """
    from app.services.operations.redis_acl import USERS_FILE, RedisUsersError, write_users

    try:
        written = write_users(directory, nodes, address=address)
    except (RedisUsersError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{directory / USERS_FILE}: for the server, as `aclfile` in its redis.conf")
    for path in written:
        click.echo(f"{path}: TRAINYARD_BROKER_URL of {path.stem}")
