"""Every kind of fault of processes: killed, stopped, frozen."""

import pytest

from tests.faults import process_faults
from tests.faults.cluster import Cluster
from tests.faults.faults import Fault
from tests.faults.surviving import assert_survived, every_fault

pytestmark = pytest.mark.timeout(240)


@pytest.mark.long
@every_fault(process_faults)
def test_job_survives(cluster: Cluster, fault: Fault) -> None:
    assert_survived(cluster, fault)
