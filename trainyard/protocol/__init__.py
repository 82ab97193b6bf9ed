"""The protocol between a rank and its supervisor: messages, channel, manifest, commands."""
