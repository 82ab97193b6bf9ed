"""Reaching a running job: sessions of people in its sandbox, its ports, and sandboxes that stay after a failure."""
