"""What a training script says to the scheduler, and learns from it.

Three lines let it be moved to another process in the middle of an epoch:

    from sanjaya_job import Job

    job = Job(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)   # whatever has a state
    for epoch in job.epochs(10):
        for batch in job.batches(loader):
            ...

The other process runs the same script up to `Job(...)`, gets the state there, and goes on with the next batch: to the
bit as if nothing had been. A data-parallel script that runs its batches in shards can be grown and shrunk as well, and
needs no DistributedDataParallel; its losses are the same to the bit on any number of GPUs:

    dist.init_process_group("gloo")                       # as torchrun's environment variables say; "nccl" on GPUs
    job = Job(elastic=True, model=model, optimizer=optimizer)
    for epoch in job.epochs(10):
        for batch in job.batches(loader):                 # the whole batch, on every process
            optimizer.zero_grad()
            for inputs, labels in job.shards(batch):      # this process's parts of it
                loss_of(model(inputs), labels).backward()
            optimizer.step()                              # with the gradients of the whole batch

Two lines let a sweep try parameters with it, with or without a Job, with or without torch:

    from sanjaya_job import parameters, report

    lr = parameters().get("lr", 0.01)         # what this trial is to try; empty where there is no sweep
    ...
    report(epoch, accuracy=accuracy, loss=loss)

One line marks the batches of a validation, so that the trial of a wide job (`sanjaya submit --trial`) comes to it, too:

    from sanjaya_job import validation

    valid_loader = validation(DataLoader(...))    # where it is made; otherwise used as before

Every process of a task can import this module, because its folder is on their PYTHONPATH; without an agent the loops
are plain loops, and reports go nowhere.
"""

from typing import Any

from sanjaya_harness import part

_reporting = part("reporting")
parameters = _reporting.parameters
report = _reporting.REPORTER.report
validation = part("trial").validation


def __getattr__(name: str) -> Any:
    """Loads `Job` when it is first asked for: it needs torch, which a script that only reports may do without."""
    if name == "Job":
        return part("job").Job
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
