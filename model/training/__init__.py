"""What pretraining and fine-tuning share: checkpoints, curves, progress, throughput."""
