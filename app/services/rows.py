"""Types of the rows that services return, for the annotations of their callers.

A caller reads the attributes of a row and passes a session on to services. It neither changes rows nor queries the
database itself: only services do.
"""

from sqlalchemy.orm import Session as Session  # noqa: PLC0414 – exported, here and below

from app.models import Attempt as Attempt  # noqa: PLC0414
from app.models import Batch as Batch  # noqa: PLC0414
from app.models import BatchJob as BatchJob  # noqa: PLC0414
from app.models import File as File  # noqa: PLC0414
from app.models import Job as Job  # noqa: PLC0414
from app.models import JobEvent as JobEvent  # noqa: PLC0414
from app.models import ModelPermission as ModelPermission  # noqa: PLC0414
from app.models import Project as Project  # noqa: PLC0414
from app.models import Service as Service  # noqa: PLC0414
from app.models import Sweep as Sweep  # noqa: PLC0414
from app.models import SweepEvent as SweepEvent  # noqa: PLC0414
from app.models import Trial as Trial  # noqa: PLC0414
from app.models import Upload as Upload  # noqa: PLC0414
from app.models import UploadPart as UploadPart  # noqa: PLC0414
from app.models.kubernetes_object import KubernetesObject as KubernetesObject  # noqa: PLC0414
