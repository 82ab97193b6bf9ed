"""Entry point of a rank that completes prompts: `python -m workers.trainers.rollouts.main --spec RUN_DIR/spec.json`."""

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainyard.protocol.run_spec import RunSpec
from workers.rank.role_environment import own_spec
from workers.trainers.rollouts.places import own_place, secret
from workers.trainers.rollouts.server import RolloutServer, serve

if TYPE_CHECKING:
    from workers.trainers.rollouts.request_handler import RequestHandler


def main() -> None:
    """Listen at once, then load the model; SIGTERM ends it at once, because no step is lost with it.

    The exit code is that of a signal: one that is not the platform's is a failure, after which it is started again.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True)
    spec = own_spec(RunSpec.read(parser.parse_args().spec), os.environ)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    serve(lambda: _server(spec, os.environ), lambda: _load(spec))


def _server(spec: RunSpec, environment: Mapping[str, str]) -> RolloutServer:
    return RolloutServer(
        own_place(environment),
        int(environment["LOCAL_RANK"]),
        int(environment["LOCAL_WORLD_SIZE"]),
        secret(environment),
        spec.run_dir / "work",
    )


def _load(spec: RunSpec) -> "RequestHandler":
    # Imported late: the rank listens before torch takes seconds to load.
    from workers.trainers import distributed, hidden_packages  # noqa: PLC0415

    hidden_packages.leave_out([spec.framework], [])
    from workers.trainers.rollouts import model  # noqa: PLC0415

    distributed.use_devices(spec)
    found = model.load(spec)
    sys.stdout.write("the rollout is ready\n")
    sys.stdout.flush()
    return found


if __name__ == "__main__":
    main()
