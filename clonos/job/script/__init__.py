"""The user's file that describes a job: how it is loaded, and how it ends when it runs as a script."""
