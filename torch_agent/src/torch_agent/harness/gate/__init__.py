"""How the time of a GPU is shared between its owner and the guests beside it (AntMan, OSDI'20, section 3.1.2).

compute.py (which role) ─> signals.py (owner: I wait, until then) ─> waits.py (for how long)
                        └> entering.py (guest: before groups of operations) ─> gate.py ─> pace.py, spacing.py, depth.py
"""
