"""Fine-tuning: models with heads, the training of a cell, predicting, and comparing cells."""
