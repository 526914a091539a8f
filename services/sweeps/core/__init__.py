"""The pure part of sweeps."""
