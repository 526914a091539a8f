"""The simulation shell: the services' own cores on a virtual clock, with simulated nodes.

    workload ──> Simulation ──> control log (and orders) ──> simulated nodes ──> facts ──> Simulation

The cores are the ones that run live; here they are fed from memory, time jumps to the next event, and what
hardware would do is played by `nodes`. Nothing here reads a clock: a run is a function of its inputs.
"""
