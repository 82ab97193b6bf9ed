"""Everything that runs on a training machine: node worker, supervisors, launcher, sandbox, trainers."""
