"""Private training runs: plan, lots, steps, checkpoints and charges."""
