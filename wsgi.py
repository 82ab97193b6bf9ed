"""Where `flask` and WSGI servers look for the application; it is built from the environment when it is asked for."""

from app.host.imports import uncollected_imports

with uncollected_imports():
    from app.factory import from_environment as create_app

__all__ = ["create_app"]
