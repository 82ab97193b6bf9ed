"""The supervisor's part of a replica: relay, endpoint, adapters."""
