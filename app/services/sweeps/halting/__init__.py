"""Halted trials: they wait at a rung, evaluated and saved, without a device, until their sweep decides about them."""
