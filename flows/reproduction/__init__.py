"""What makes an artifact again elsewhere: its folder is written, and checked by making it again."""
