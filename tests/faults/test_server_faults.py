"""Every kind of fault of servers and the network between."""

import pytest

from tests.faults import server_faults
from tests.faults.cluster import Cluster
from tests.faults.faults import Fault
from tests.faults.surviving import assert_survived, every_fault

pytestmark = pytest.mark.timeout(240)


@pytest.mark.long
@every_fault(server_faults)
def test_job_survives(cluster: Cluster, fault: Fault) -> None:
    assert_survived(cluster, fault)
