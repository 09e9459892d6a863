"""BERT: encoder and heads, instance loader, training, checkpoints, tasks and tables."""
