"""Processes that have their imports behind them and fork what is requested: see docs/explanation/warm-starts.md."""
