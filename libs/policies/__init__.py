"""Policies: plain functions over a view of jobs and GPUs, used by placement, `sanjaya solve` and the simulator."""
