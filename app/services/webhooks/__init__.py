"""Webhook subscriptions and their delivery."""
