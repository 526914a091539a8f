"""AntMan's algorithm 1 (OSDI'20, section 3.3) as plainly as it can be said: what placement is compared with.

One GPU type, no limits of hosts, no faults; a place on more servers than necessary is accepted at once. Nothing of a
job has been measured, so each is taken to use half of a GPU until a sample says how busy that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BUSY, UNKNOWN, SEATS = 0.8, 0.5, 3
Place = tuple[str, int]


@dataclass
class Gpu:
    owner: str = ""
    guests: list[str] = field(default_factory=list)
    measured: float = 0.0
    later: int = 0

    @property
    def load(self) -> float:
        return self.measured + self.later * UNKNOWN


@dataclass
class Job:
    name: str
    tenant: str
    gpus: int
    guest: bool
    rank: tuple[int, int]
    """Priority, negated, and number of arrival."""
    places: list[Place] = field(default_factory=list)


class Cell:
    """Servers of one size or several, in racks; tenants with quotas."""

    def __init__(self, racks: dict[str, str], sizes: dict[str, int], quotas: dict[str, int]) -> None:
        self.racks, self.quotas = racks, quotas
        self.gpus = {server: [Gpu() for _ in range(size)] for server, size in sizes.items()}
        self.jobs: dict[str, Job] = {}
        self.reserved: dict[str, dict[str, int]] = {}
        """{gang: {server: GPUs}}."""

    def turn(self, job: Job) -> tuple[float, tuple[int, int]]:
        running = [other for other in self.jobs.values() if other.tenant == job.tenant and not other.guest]
        return sum(len(other.places) for other in running) / self.quotas[job.tenant], job.rank

    def leave(self, name: str) -> None:
        for server, index in self.jobs.pop(name).places:
            gpu = self.gpus[server][index]
            gpu.owner, gpu.guests = "" if gpu.owner == name else gpu.owner, [g for g in gpu.guests if g != name]
            gpu.measured, gpu.later = 0.0, len(gpu.guests) + bool(gpu.owner)

    def give_to_owners(self) -> list[tuple[str, list[Place]]]:
        """Which jobs get which GPUs now, in this order; one as large as one that has got nothing is not looked at."""
        given, looked, too_large = [], dict[str, None](), dict[int, None]()
        while waiting := [
            job
            for job in self.jobs.values()
            if not (job.guest or job.places or job.name in looked or job.gpus in too_large)
        ]:
            job = min(waiting, key=self.turn)
            looked[job.name] = None
            places = self.find_nodes(self.free(job), job.gpus)
            if places:
                given.append(self.place(job, places))
                continue
            if job.gpus > 1 and job.name not in self.reserved:
                self.reserve(job)
            if job.name not in self.reserved:
                too_large[job.gpus] = None
        return given

    def give_to_guests(self) -> list[tuple[str, list[Place]]]:
        """Which of them get which seats now, in this order."""
        given = []
        for job in sorted((j for j in self.jobs.values() if j.guest and not j.places), key=lambda j: j.rank):
            places = self.min_load_nodes(job.gpus)
            if places:
                given.append(self.place(job, places))
        return given

    def place(self, job: Job, places: list[Place]) -> tuple[str, list[Place]]:
        near = [name for name, parts in self.reserved.items() if any(server in parts for server, _ in places)]
        near.sort(key=lambda name: self.turn(self.jobs[name]))
        behind = {name: self.kept(name) for name in near if self.turn(self.jobs[name]) > self.turn(job)}
        self.reserved.pop(job.name, None)
        job.places = places
        for server, index in places:
            gpu = self.gpus[server][index]
            gpu.guests, gpu.owner = ([*gpu.guests, job.name], gpu.owner) if job.guest else (gpu.guests, job.name)
            gpu.later += 1
        for name, had in behind.items():
            if not job.guest and self.kept(name) < had:
                del self.reserved[name]
        return job.name, places

    def before(self, job: Job) -> dict[str, int]:
        """{server: GPUs that gangs which go before the job are to have}."""
        found = dict.fromkeys(self.gpus, 0)
        for name, parts in self.reserved.items():
            if self.turn(self.jobs[name]) < self.turn(job):
                for server, gpus in parts.items():
                    found[server] += gpus
        return found

    def free(self, job: Job) -> dict[str, list[int]]:
        """{server: GPUs without owner, and without a reservation of a gang that goes before the job}."""
        taken = self.before(job)
        unowned = {s: [i for i, gpu in enumerate(gpus) if not gpu.owner] for s, gpus in self.gpus.items()}
        return {server: indices[taken[server] :] for server, indices in unowned.items()}

    def kept(self, name: str) -> int:
        free = self.free(self.jobs[name])
        return sum(min(gpus, len(free[server])) for server, gpus in self.reserved[name].items())

    def reserve(self, job: Job) -> None:
        """On the fewest servers, with the most GPUs free already."""
        free, taken = self.free(job), self.before(job)
        room = {server: len(gpus) - taken[server] for server, gpus in self.gpus.items()}
        one = [server for server in room if room[server] >= job.gpus]
        by_size = sorted(room, key=lambda s: (-room[s], -len(free[s]), s))
        chosen = [min(one, key=lambda s: (-len(free[s]), s))] if one else by_size
        parts: dict[str, int] = {}
        for server in chosen:
            parts[server] = min(room[server], job.gpus - sum(parts.values()))
        if sum(parts.values()) < job.gpus:
            return
        self.reserved[job.name] = {server: gpus for server, gpus in parts.items() if gpus > 0}
        fulfilled: dict[str, dict[str, int]] = {}
        for name in sorted(self.reserved, key=lambda n: self.turn(self.jobs[n])):
            both = [*fulfilled.values(), self.reserved[name]]
            if all(sum(p.get(s, 0) for p in both) <= len(self.gpus[s]) for s in self.gpus):
                fulfilled[name] = self.reserved[name]
        self.reserved = fulfilled

    def guests(self, server: str, indices: list[int]) -> int:
        return sum(len(self.gpus[server][index].guests) for index in indices)

    def find_nodes(self, free: dict[str, list[int]], count: int) -> list[Place]:
        """Fewest servers, then fewest racks, then fewest guests disturbed."""

        def pick(server: str, wanted: int) -> list[int]:
            return sorted(sorted(free[server], key=lambda i: (self.guests(server, [i]), i))[:wanted])

        def fullest(servers: list[str], wanted: int) -> str:
            return min(servers, key=lambda s: (self.guests(s, pick(s, wanted)), len(free[s]), s), default="")

        def over(servers: list[str]) -> list[Place]:
            left, found = sorted(servers, key=lambda s: (-len(free[s]), s)), list[Place]()
            while left and len(found) < count:
                missing = count - len(found)
                server = fullest([s for s in left if len(free[s]) >= missing], missing) or left[0]
                left.remove(server)
                found += [(server, index) for index in pick(server, missing)]
            return found if len(found) == count else []

        some = [server for server in free if free[server]]
        alone = fullest([server for server in some if len(free[server]) >= count], count)
        if alone:
            return over([alone])
        racks = sorted({self.racks[server] for server in some})
        places = [over([s for s in some if self.racks[s] == rack]) for rack in racks] + [over(some)]
        return min((p for p in places if p), key=self.rate, default=[])

    def rate(self, places: list[Place]) -> tuple[int, int, int]:
        servers = {server for server, _ in places}
        return len(servers), len({self.racks[s] for s in servers}), sum(self.guests(s, [i]) for s, i in places)

    def min_load_nodes(self, count: int) -> list[Place]:
        """The least loaded candidates, on the fewest servers."""
        found: list[Place] = []
        left = {
            server: sorted((gpu.load, i) for i, gpu in enumerate(gpus) if gpu.load < BUSY and len(gpu.guests) < SEATS)
            for server, gpus in self.gpus.items()
        }
        while len(found) < count and any(left.values()):
            missing = count - len(found)
            first = {server: seats[:missing] for server, seats in left.items() if seats}
            server = min(first, key=lambda s: (-len(first[s]), sum(load for load, _ in first[s]), s))
            found += sorted((server, index) for _, index in first[server])
            del left[server]
        return found if len(found) == count else []
