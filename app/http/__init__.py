"""What every vocabulary of the HTTP API stands on: who calls, what a route declares, bodies, answers and errors."""
