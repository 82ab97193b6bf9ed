"""Every kind of fault of machines: clocks, disks, daemons, floods."""

import pytest

from tests.faults import machine_faults
from tests.faults.cluster import Cluster
from tests.faults.faults import Fault
from tests.faults.surviving import assert_survived, every_fault

pytestmark = pytest.mark.timeout(240)


@every_fault(machine_faults)
def test_job_survives(cluster: Cluster, fault: Fault) -> None:
    assert_survived(cluster, fault)
