"""The agent that starts the ranks of an attempt on one node, and the environment of each rank."""
