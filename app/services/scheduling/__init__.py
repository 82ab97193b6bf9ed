"""The planner over the database: snapshots, planning passes, placement, preemption, leader election."""
