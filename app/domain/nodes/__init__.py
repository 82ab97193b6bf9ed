"""Rules about nodes: limits, sandboxes, reliability, quarantine."""
