"""The dashboard for browsers: pages below `/ui` that call the services of the API as the key signed in with."""
