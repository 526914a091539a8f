"""Takes the memory of a training process off its device and brings it back, behind the script's back.

storages.py (what is alive) ─> parking.py (out and in) ─> arenas.py (where it lies meanwhile)
"""
