"""The native HTTP API: blueprints that parse a request, authorize it, call one service and serialize the result."""
