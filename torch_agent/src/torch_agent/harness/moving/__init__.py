"""What moves with a job: where it is in an epoch, its random numbers, its state in memory and on disk.

randomness.py (every generator) ─> drawing.py (a pass over batches that can be repeated)
saving.py (a state with parked tensors)    loading.py    checkpoints.py (one that outlives the process)
"""
