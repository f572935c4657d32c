"""What leaves the job and what comes in from producers: keepers, the output gate, journals (protocol 7)."""
