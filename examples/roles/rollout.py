"""The role `rollout` of examples/jobs/roles.json: plays with the weights that the trainer sends, and answers rewards.

It is a sidecar, so it serves until the trainer has ended, and starts again alone if it fails.
"""

import json
import math
import os
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LEVERS = 10
PLAYS = 64
BEST = 7  # the lever that pays most, which the trainer does not know


class Rollouts(BaseHTTPRequestHandler):
    """POST {"weights": […], "seed": n} → {"plays": [[lever, reward], …]}."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"plays": play(asked["weights"], random.Random(asked["seed"]))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print no line for each request."""


def play(weights: list[float], chance: random.Random) -> list[tuple[int, float]]:
    """Pull levers as often as the policy prefers them; each pays less the farther it is from the best one."""
    shares = [math.exp(weight) for weight in weights]
    levers = chance.choices(range(LEVERS), shares, k=PLAYS)
    return [(lever, 1 - abs(lever - BEST) / LEVERS + chance.gauss(0, 0.1)) for lever in levers]


def main() -> None:
    """Serve at the place that the platform has chosen for this instance."""
    index = int(os.environ["TRAINYARD_TASK_INDEX"])
    mine = json.loads(os.environ["TRAINYARD_TASKS"])[os.environ["TRAINYARD_ROLE"]][index]
    server = ThreadingHTTPServer((mine["address"], mine["port"]), Rollouts)
    print(f"rollout {index} serves at {mine['address']}:{mine['port']}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
