"""Processes that have their imports behind them and fork whoever is asked for: see docs/explanation/warm-starts.md."""
