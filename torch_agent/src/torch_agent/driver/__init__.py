"""Suspension by the NVIDIA driver, for processes that the harness is not in: their memory leaves the GPU all the same.

interface.py (the driver's checkpoint interface) ─> operations.py (for the processes of tasks, without waiting for them)
"""
