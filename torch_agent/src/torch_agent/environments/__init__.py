"""What a job's processes run in: interpreter, virtual or conda environment, setup, container image, data."""
