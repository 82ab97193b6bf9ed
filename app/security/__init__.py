"""API keys, permissions, rate limits, encryption and signed tokens."""
