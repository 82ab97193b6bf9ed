"""The command line: one command, `trainyard`, whose parts are imported when they are asked for."""
