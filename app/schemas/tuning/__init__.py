"""Requests and answers of sweeps."""
