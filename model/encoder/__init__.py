"""BERT's encoder and its pretraining heads, and both in Hugging Face's layout on disk."""
