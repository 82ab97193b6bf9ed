"""Graders as rewards of RLHF."""
