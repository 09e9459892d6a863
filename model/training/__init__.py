"""Training loop, checkpoints and artifact files, shared by pretraining and fine-tuning."""
