"""Task types: features, predictions and scores of each. Without torch."""
