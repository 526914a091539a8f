"""The pure part of the agent: no clock, no processes, no files."""
