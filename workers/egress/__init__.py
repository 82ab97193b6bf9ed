"""The way out of a sandbox without a network: a proxy that connects to the services of the project's list."""
