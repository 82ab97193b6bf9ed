"""Tools for people who work on Trainyard; nothing here is installed."""
