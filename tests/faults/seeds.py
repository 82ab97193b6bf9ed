"""What random faults go by, the same for all modules: the environment says it, or nobody does."""

import os
import random

SEED = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(2**32))
# How many random faults; each takes some ten seconds.
DRAWS = int(os.environ.get("FAULTS_DRAWS") or 60)
