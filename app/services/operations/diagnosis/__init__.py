"""The checks of `trainyard doctor`: one small check per common deployment problem."""
