"""Three lines in a training script that let it be moved to another process in the middle of an epoch.

    from sanjaya_job import Job

    job = Job(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)   # whatever has a state
    for epoch in job.epochs(10):
        for batch in job.batches(loader):
            ...

The other process runs the same script up to `Job(...)`, gets the state there, and goes on with the next batch: to the
bit as if nothing had been. Every process of a task can import this module, because its folder is on their PYTHONPATH;
without an agent the loops are plain loops.
"""

from sanjaya_harness import part

Job = part("job").Job
