"""History of a job: the events that its drivers leave in the checkpoint store, and what can be read from them."""
