"""The methods of sweeps that need other libraries, as a program: `python -m app.search`.

The only place that imports Optuna, cmaes and scipy. No other package of ours imports it: `app.services.sweeps` starts
it as a child process without credentials, and asks it by lines of JSON.
"""
