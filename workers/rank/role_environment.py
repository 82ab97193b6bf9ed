"""What a rank of a role sees of its job: torchrun's variables within its world, and the places of all roles."""

import json
from collections.abc import Mapping
from dataclasses import replace

from trainyard.protocol.role_instance import RoleInstance
from trainyard.protocol.run_spec import Gang, RunSpec


def spec_of(spec: RunSpec, instance: RoleInstance) -> RunSpec:
    """The specification as if its job were the instance's world alone, and each of that world's instances a node."""
    gang = Gang(
        node_rank=instance.index if instance.node_rank is None else instance.node_rank,
        nodes=instance.count if instance.nodes is None else instance.nodes,
        local_ranks=instance.ranks,
        address=instance.address,
        port=instance.port,
        interface=spec.gang.interface if spec.gang is not None else "",
    )
    is_beside = instance.program == "script" and spec.framework != "CUSTOM"
    return replace(
        spec.beside_a_trainer() if is_beside else spec,
        gang=gang,
        instances=(),
        world_size=instance.role_world_size,
        framework="CUSTOM" if is_beside else spec.framework,
        script=instance.script,
        arguments=instance.arguments,
        command=instance.command,
        directory=instance.directory,
        packages_path=instance.packages_path,
        device_type=instance.device_type,
        device_indices=instance.device_indices,
        device_uuids=instance.device_uuids,
        threads_per_rank=instance.threads_per_rank,
    )


def own_spec(spec: RunSpec, environment: Mapping[str, str]) -> RunSpec:
    """The specification as a rank with these variables has it: that of its role, if it has one."""
    own = environment.get("TRAINYARD_ROLE"), environment.get("TRAINYARD_TASK_INDEX")
    instance = next((each for each in spec.instances if (each.role, str(each.index)) == own), None)
    return spec if instance is None else spec_of(spec, instance)


def role_variables(spec: RunSpec, instance: RoleInstance, local_rank: int) -> Mapping[str, str]:
    """Where the rank is in its world, whose instances may have other numbers of ranks, and in the job."""
    return {
        "RANK": str(instance.role_first_rank + local_rank),
        "TRAINYARD_ROLE": instance.role,
        "TRAINYARD_TASK_INDEX": str(instance.index),
        "TRAINYARD_TASKS": json.dumps(spec.tasks),
        "TRAINYARD_RANK": str(instance.first_rank + local_rank),
        **({"TRAINYARD_ROLLOUT_ROLE": instance.rollouts} if instance.rollouts else {}),
    }
