"""The wire format of the native API in marshmallow, one noun per file; unknown fields are errors."""
