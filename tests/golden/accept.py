"""Records the golden log anew: `python -m tests.golden.accept`.

Do so only when a core is meant to decide otherwise than before; then look at the difference in the log:
it says what every user's next log will say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from libs.inspect.jsonl import write_jsonl
from libs.inspect.logs import Log
from libs.inspect.verify import Verification, verify
from libs.sim.options import FailureModel, FaultKind
from libs.sim.simulation import Simulation
from libs.sim.workloads import generate
from libs.testing.builders import Scenario, log_of
from services.roster import SERVICES

HERE = Path(__file__).parent
LOG = HERE / "cell.jsonl"
EXPECTED = HERE / "cell.expected.json"


def record() -> Simulation:
    """A day in the life of a small cell: failures, cancellations, a pause, a drain, a crash, limits."""
    scenario = Scenario(seed=2).servers(4, v100=8, k80=4)
    scenario.options(
        failures=FailureModel(attempt_failure_ratio=0.25), start_delay_s=2.0, stop_delay_s=1.0, profile_every_s=900.0
    )
    scenario.tenant("product", 6).setting("placement", "reserve_after_s", 120)
    jobs = generate(30, seed=7, jobs_per_hour=60.0, median_s=600.0, longest_s=3600.0)
    for number, job in enumerate(jobs):
        fields = {"tenant": job.tenant, "max_retries": number % 3, "restartable": number % 2 == 0}
        scenario.job(job.job_id, job.gpus, at=job.submit_time_s, runs_s=job.duration_s or 0.0, **fields)
    scenario.job("too-large", 16, at=100.0)
    scenario.cancel("job-00003", at=800.0).cancel("job-00011", at=1200.0)
    scenario.pause("job-00005", at=900.0, until=1500.0).pause("job-00009", at=950.0, until=980.0)
    scenario.drain("v100-000", at=1000.0, until=2500.0)
    scenario.fault(FaultKind.CRASH, "k80-000", at=1700.0, for_s=300.0)
    scenario.fault(FaultKind.AGENT_RESTART, "v100-001", at=2200.0, for_s=10.0)
    scenario.tenant("product", None, at=2000.0)
    return scenario.run(SERVICES)


def recorded(simulation: Simulation) -> Log:
    """The log as it is kept: it does not name its rules, because those at hand are to decide the same."""
    log = log_of(simulation, cell="golden")
    return replace(log, header=msgspec.structs.replace(log.header, rules={}))


def expected(verification: Verification) -> bytes:
    """What a replay of the golden log must give, to be compared byte by byte."""
    fields = {
        "events": verification.events,
        "decisions": verification.decisions,
        "differences": verification.differences,
        "pending": verification.pending,
        "state_hashes": verification.state_hashes,
    }
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def main() -> None:
    """Write both files."""
    simulation = record()
    with LOG.open("wb") as out:
        records = write_jsonl(recorded(simulation), out)
    verification = verify(log_of(simulation, cell="golden"), SERVICES)
    EXPECTED.write_bytes(expected(verification))
    print(f"{records} records, {verification.decisions} decisions, {verification.differences} differences")


if __name__ == "__main__":
    main()
