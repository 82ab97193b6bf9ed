"""Commands about inference jobs and evaluations, over HTTP."""
