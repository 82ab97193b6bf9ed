"""The relay of a replica: lets the platform's own clients alone reach the engine in the sandbox."""
