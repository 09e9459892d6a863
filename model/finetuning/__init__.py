"""Fine-tuning: models with heads, the training of a trial, predicting, and comparing trials."""
