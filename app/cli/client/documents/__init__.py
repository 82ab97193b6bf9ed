"""Job documents on their way to the server: values set on the command line, and variables of the environment."""
