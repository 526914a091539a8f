"""Random problems for allocation policies."""

from __future__ import annotations

from hypothesis import strategies as st

from libs.policies.problem import (
    Entity,
    GpuPool,
    Job,
    Pair,
    PolicyOptions,
    Problem,
)

MOST_JOBS = 40
FEW = 12
"""Up to so many jobs, pairs may be any at all."""
rates = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 7.5])


@st.composite
def problems(draw: st.DrawFn, policy: str, *, entities: bool = False) -> Problem:
    """From a few configurations, so that jobs repeat; sometimes each job is different."""
    types = ["v100", "p100", "k80", "t4"][: draw(st.integers(1, 4))]
    cluster = {
        t: GpuPool(gpus=draw(st.integers(1, 9)), cost_per_hour=draw(st.sampled_from([0.5, 1.0, 2.5]))) for t in types
    }
    configurations = [
        ({t: draw(rates) for t in types}, draw(st.sampled_from([1, 1, 1, 2, 4])))
        for _ in range(draw(st.integers(1, 4)))
    ]
    names = ["research", "product"][: draw(st.integers(1, 2))] if entities else []
    jobs = []
    kinds = []
    for number in range(draw(st.integers(0, FEW) | st.integers(FEW + 1, MOST_JOBS))):
        kind = draw(st.integers(0, len(configurations) - 1))
        throughputs, width = configurations[kind]
        kinds.append(kind)
        jobs.append(
            Job(
                id=f"j{number}",
                throughputs=throughputs,
                scale_factor=width,
                weight=draw(st.sampled_from([1.0, 1.0, 2.0])),
                entity=draw(st.sampled_from(names)) if names else None,
                steps_remaining=draw(st.sampled_from([100.0, 250.0, 1000.0])),
                elapsed_s=draw(st.sampled_from([0.0, 60.0])),
                isolated_elapsed_s=draw(st.sampled_from([0.0, 50.0])),
                slo_s=draw(st.sampled_from([None, None, 50.0, 500.0])),
            )
        )
    options = PolicyOptions(
        space_sharing=draw(st.booleans()),
        heterogeneity_aware=draw(st.booleans()),
        water_filling=policy == "max_min_fairness" and entities,
    )
    return Problem(
        policy=policy,
        cluster=cluster,
        jobs=jobs,
        options=options,
        pairs=draw(pairs(jobs, kinds)) if options.space_sharing else [],
        entities={
            name: Entity(
                weight=draw(st.sampled_from([1.0, 2.0])), policy=draw(st.sampled_from(["fairness", "fairness", "fifo"]))
            )
            for name in names
        },
    )


@st.composite
def pairs(draw: st.DrawFn, jobs: list[Job], kinds: list[int]) -> list[Pair]:
    """By configuration, as in a cluster; or any pairs at all, as a user may write them down."""
    parts = st.sampled_from([0.0, 0.4, 0.6, 0.8, 1.0])
    by_kind: dict[tuple[int, int], dict[str, tuple[float, float]]] = {}
    regular = len(jobs) > FEW or draw(st.booleans())
    found = []
    for i, a in enumerate(jobs):
        for j in range(i + 1, len(jobs)):
            b = jobs[j]
            if a.scale_factor != b.scale_factor or (not regular and draw(st.booleans())):
                continue
            key = (kinds[i], kinds[j])
            if key not in by_kind or not regular:
                by_kind[key] = {
                    t: (a.throughputs[t] * draw(parts), b.throughputs[t] * draw(parts)) for t in a.throughputs
                }
                if key[0] == key[1]:
                    by_kind[key] = {t: (x, x) for t, (x, _) in by_kind[key].items()}
                by_kind[key[1], key[0]] = {t: (y, x) for t, (x, y) in by_kind[key].items()}
            found.append(Pair(jobs=(a.id, b.id), throughputs=by_kind[key]))
    return found
