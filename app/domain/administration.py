"""Bounds of what administrators set for keys, queues and projects, which the command line and the API check alike."""

DEFAULT_GRACE_SECONDS = 3600
MAX_GRACE_SECONDS = 30 * 86400
LONGEST_KEY_NAME = 128
MAX_EXPIRES_DAYS = 36500
LONGEST_DESCRIPTION = 255  # of a project
MOST_JOBS = 1_000_000  # running or waiting, of a queue
MOST_OF_QUOTA = 1_000_000  # devices or jobs of a project
MOST_DEMANDS = 16  # capabilities that a project demands of nodes
CREATE_CLAIMS, USE_CLAIMS = CLAIM_RIGHTS = ("create", "use")  # Project.claims
AS_INSTALLED, MAKES_SERVICES, MAKES_NONE = AUTO_SERVICES = ("default", "on", "off")  # Project.auto_services
OPTIONAL_DIGESTS, REQUIRED_DIGESTS = IMAGE_DIGESTS = ("optional", "required")  # Project.image_digests
MOST_PER_MINUTE = 1_000_000_000  # requests or tokens of a key
