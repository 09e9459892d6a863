"""What pretraining and fine-tuning share: the loop, checkpoints, files of an artifact."""
