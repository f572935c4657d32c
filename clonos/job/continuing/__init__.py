"""How a job goes on elsewhere or again: savepoints, and what follows a failure."""
