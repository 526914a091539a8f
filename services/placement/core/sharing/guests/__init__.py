"""Opportunistic jobs as guests on what guaranteed jobs leave (AntMan, OSDI'20, section 3.3, algorithm 1)."""
