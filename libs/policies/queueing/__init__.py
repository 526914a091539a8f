"""Queue policies: in which order jobs are placed, and what happens to one that does not fit."""
