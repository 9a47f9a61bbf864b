"""A cluster that already runs, whoever deployed it: we start, stop and wipe nothing of it."""
