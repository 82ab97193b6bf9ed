"""The native HTTP API: blueprints that parse, authorise, call one service and dump."""
