"""Gavel's policies as exact optimisation problems over classes of interchangeable jobs."""
