"""Many runs at once: what a run is, grids of them, and running them on several processes, resumably.

    grid file ──> RunSpec, RunSpec, … ──> one process each ──> one result file each ──> report

What plays a run is handed in (`execute`), so nothing here knows the services.
"""
