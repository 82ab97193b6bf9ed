"""The wire format of the native API as marshmallow schemas, one resource per file; unknown fields are errors."""
