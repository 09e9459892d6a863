"""One phase of pretraining: setup, training module, evaluation and results."""
