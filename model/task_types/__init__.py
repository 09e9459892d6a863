"""What each type of task does with examples, model outputs and predictions. No torch here."""
