"""`trainyard up` and `trainyard demo`: a whole platform on one machine."""
