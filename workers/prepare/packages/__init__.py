"""Package environments of jobs: virtual environments that this node builds with uv, keeps, and shares read-only."""
