"""Several jobs on one GPU: how fast they are together, pairs of an allocation, packs on trial."""
