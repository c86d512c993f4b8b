"""Running experiments: the trainer, evaluation, decoding, checkpoints and the run directory."""
