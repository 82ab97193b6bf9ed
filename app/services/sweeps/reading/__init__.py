"""Answers about sweeps: lists, the best trial, figures, forecasts, replays."""
