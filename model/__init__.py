"""BERT itself: encoder and heads, the instance loader, training, checkpoints."""
