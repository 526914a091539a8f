"""How many jobs an hour a cluster can sustain at best: what loads of an experiment are measured against.

A load that is high for one table of rates is low for another. As a part of what an ideal heterogeneity-aware
scheduler could just sustain, loads can be compared between tables and clusters.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linprog

from libs.sim.throughputs import Throughputs
from libs.studies.generators.gavel import KINDS, GavelWorkload, configurations, mean_duration_s


def sustainable_jobs_per_hour(workload: GavelWorkload, throughputs: Throughputs, gpus: Mapping[str, int]) -> float:
    """The greatest rate of arrivals for which some share of GPU time keeps up with every configuration.

    A linear program: as much of each GPU type's time to each configuration as its work needs, without space
    sharing, everything consolidated, nothing lost by rounding. No real schedule can sustain more.

    Args:
        workload: what arrives; its rate of arrivals is ignored.
        throughputs: the rates.
        gpus: {GPU type: GPUs} of the cluster.
    """
    mix = KINDS[workload.kind].gpu_mix
    whole = sum(weight for _, weight in mix)
    shares = [
        (config, weight / whole / len(configs))
        for count, weight in mix
        for configs in [configurations(throughputs, count, workload.reference, workload.models)]
        for config in configs
    ]
    hours = _mean_hours(workload)
    types = list(gpus)
    columns = 1 + len(shares) * len(types)
    work = np.zeros((len(shares), columns))
    time = np.zeros((len(types), columns))
    for row, (config, share) in enumerate(shares):
        work[row, 0] = share * hours
        reference = throughputs.rate(config, workload.reference, consolidated=True) or 1.0
        for place, gpu_type in enumerate(types):
            column = 1 + row * len(types) + place
            work[row, column] = -(throughputs.rate(config, gpu_type, consolidated=True) or 0.0) / reference
            time[place, column] = config[2]
    best = linprog(
        np.concatenate([[-1.0], np.zeros(columns - 1)]),
        A_ub=np.concatenate([work, time]),
        b_ub=np.concatenate([np.zeros(len(shares)), [float(gpus[gpu_type]) for gpu_type in types]]),
    )
    return float(-best.fun)


def _mean_hours(workload: GavelWorkload) -> float:
    chosen = workload.duration_choices_s
    return (sum(chosen) / len(chosen) if chosen else mean_duration_s()) / 3600
