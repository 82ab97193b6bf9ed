"""Which replica a request goes to: one that has its adapter, unless that one has much more to do than others."""

import hashlib
import math
import random
from collections.abc import Callable, Sequence

from app.services.serving.endpoints import Endpoint

# A replica gets requests for its adapters up to this many times what each would have if all had the same
# ("Consistent Hashing with Bounded Loads", Mirrokni, Thorup and Zadimoghaddam, 2018).
BOUND = 1.25
FEW = 4  # requests that a replica answers together as fast as one


def chosen(ready: Sequence[Endpoint], load: Callable[[Endpoint], int], adapter: str = "") -> Endpoint | None:
    """The replica for a request; ``load`` is what each is answering. None: there is none.

    Without an adapter it is the least loaded one. Each adapter has an order of the replicas by rendezvous hashing: the
    first that is below the bound gets the request. The order is the same in all gateways, and stays as it is among
    those that are left when replicas come and go. So replicas load few adapters each, instead of each of them all.
    """
    if not adapter or len(ready) < 2:
        return min(ready, key=lambda each: (load(each), random.random()), default=None)  # noqa: S311
    most = max(FEW, math.ceil(BOUND * (sum(map(load, ready)) + 1) / len(ready)))
    return next(each for each in sorted(ready, key=lambda each: _rank(adapter, each)) if load(each) < most)


def _rank(adapter: str, endpoint: Endpoint) -> bytes:
    return hashlib.blake2b(f"{endpoint.job_id}\n{adapter}".encode(), digest_size=8).digest()
