"""Conversations with a model, while the processes of their tasks are killed."""
