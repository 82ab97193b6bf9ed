"""Use cases of sweeps: what their methods suggest, what their trials report, and how they begin and end."""
