"""The ranks of an attempt as the supervisor observes them: channel, logs, usage, exit."""
