"""Regular expressions of users, matched in bounded time: rewards and metrics of scripts."""
