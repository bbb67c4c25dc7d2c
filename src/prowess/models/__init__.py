"""What decides: adapters to providers, and the models that need none. Each is a `Model` and nothing else."""
