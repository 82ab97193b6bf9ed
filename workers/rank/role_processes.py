"""The processes of instances of roles on this node: starts, stops and kills them for the agent."""

import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from app.host.processes import OF_PEOPLE, descendants, environment_of, kill
from trainyard.protocol.role_instance import RoleInstance
from trainyard.protocol.role_messages import RoleReport
from trainyard.protocol.run_spec import RunSpec
from workers.rank.environment import rank_command, rank_environment
from workers.rank.rank_process import StartRank
from workers.rank.role_environment import role_variables, spec_of
from workers.rank.role_ranks import Actions


class RoleProcesses:
    """``ranks`` is the agent's: pid → rank of live ranks. ``environments`` are the variables that each role gets."""

    def __init__(
        self,
        spec: RunSpec,
        spec_path: Path,
        log_fds: Sequence[int],
        environments: Mapping[str, Mapping[str, str]],
        ranks: dict[int, int],
        start: StartRank,
        on_not_started: Callable[[int, int, OSError], None],
    ) -> None:
        self._spec = spec
        self._spec_path = spec_path
        self._logs = dict(zip(spec.ranks, log_fds, strict=True))
        self._environments = environments
        self._ranks = ranks
        self._start_rank = start
        self._on_not_started = on_not_started

    def actions(self, tell: Callable[[RoleReport], None]) -> Actions:
        """What `RoleRanks` acts by; ``tell`` sends its reports."""
        return Actions(start=self.start, terminate=self.terminate, kill=self.kill, tell=tell)

    def environments(self) -> dict[int, dict[str, str]]:
        """Rank → variables, of all instances on this node."""
        return {
            rank: self._environment(instance, local_rank)
            for instance in self._spec.instances
            for local_rank, rank in enumerate(instance.global_ranks)
        }

    def start(self, instance: RoleInstance) -> None:
        """Start all of its ranks; after one that can't be started none is."""
        spec = spec_of(self._spec, instance)
        for local_rank, rank in enumerate(instance.global_ranks):
            environment = self._environment(instance, local_rank)
            command = self._command(instance, spec, environment)
            try:
                pid = self._start_rank(spec, command, Path(spec.directory), self._logs[rank], environment)
            except OSError as error:
                for each in instance.global_ranks[local_rank:]:
                    self._on_not_started(each, self._logs[each], error)
                break
            self._ranks[pid] = rank

    def _command(self, instance: RoleInstance, spec: RunSpec, environment: Mapping[str, str]) -> list[str]:
        if instance.completes_prompts:
            return [sys.executable, "-m", "workers.trainers.rollouts.main", "--spec", str(self._spec_path)]
        return rank_command(spec, self._spec_path, environment)

    def _environment(self, instance: RoleInstance, local_rank: int) -> dict[str, str]:
        place, role = (instance.address, instance.port), role_variables(self._spec, instance, local_rank)
        given = self._environments[instance.role]
        return rank_environment(spec_of(self._spec, instance), self._spec_path, local_rank, place, given, role)

    def terminate(self, ranks: Collection[int]) -> None:
        kill(self._pids_of(ranks), signal.SIGTERM)

    def kill(self, instance: RoleInstance) -> None:
        """With what its ranks have started and left: those are ours now, and known by their variables."""
        left = [pid for pid in descendants(os.getpid()) if _is_left_by(instance, environment_of(pid))]
        kill([*self._pids_of(instance.global_ranks), *left])

    def _pids_of(self, ranks: Collection[int]) -> list[int]:
        return [pid for pid, rank in self._ranks.items() if rank in ranks]


def _is_left_by(instance: RoleInstance, environment: Collection[bytes]) -> bool:
    """Commands that people run in the sandbox have a rank's variables, too, and stay."""
    marks = {f"TRAINYARD_ROLE={instance.role}".encode(), f"TRAINYARD_TASK_INDEX={instance.index}".encode()}
    return marks <= set(environment) and not any(each.startswith(OF_PEOPLE) for each in environment)
