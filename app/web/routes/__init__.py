"""The pages, a module each: parse, call the services that the API calls, render."""
