"""The paper's tables with ours beneath, and GLUE's submission. No torch here."""
