"""The seed of random faults, the same for all modules: from the environment, or drawn at random."""

import os
import random

SEED = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(2**32))
# How many random faults; each takes some ten seconds.
DRAWS = int(os.environ.get("FAULTS_DRAWS") or 60)
