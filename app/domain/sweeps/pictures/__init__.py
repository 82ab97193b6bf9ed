"""Figures of sweeps as SVG, without a browser or a plotting library; a module for each kind."""
