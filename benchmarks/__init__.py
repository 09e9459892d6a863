"""What is timed, each against a named peer or a named bare form, in the same run."""
