"""State transitions of jobs, with their events, audit entries and webhook outbox in one transaction."""
