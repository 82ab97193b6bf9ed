"""The command line: one command, `trainyard`, whose subcommands are imported on first use."""
