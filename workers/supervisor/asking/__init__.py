"""The supervisor's part of asking models: it passes requests of ranks on to the gateway, with the job's token."""
