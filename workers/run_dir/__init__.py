"""The run directory of an attempt: layout, process registry, clean-up."""
