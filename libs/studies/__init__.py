"""Studies on top of the simulator: drawn workloads, grids of runs, reports, and the papers' claims measured."""
