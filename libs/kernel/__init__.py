"""What every core is made of. Pure: no clock, no randomness, no I/O.

record ──> Replica.step ──> Machine.handle: evolve the state, then decide ──> decided envelopes
"""
