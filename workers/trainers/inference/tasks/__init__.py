"""What is asked of the engine for each record: one module for each type of task."""
