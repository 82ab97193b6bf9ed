"""The supervisor: one process per attempt and node, from preparation to completion."""
