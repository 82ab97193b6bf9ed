"""Rules of sweeps: what varies, what earlier trials say, what ends early, and which document a trial gets."""
