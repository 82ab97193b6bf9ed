"""Use cases: load, decide with the domain, store; each owns one short transaction."""
