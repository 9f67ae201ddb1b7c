"""What the commands do, callable from Python: train, compare, tune, audit, report."""
