"""The scheduler's rules: placement, fair share, backfill, preemption, gangs. Pure functions over snapshots."""
