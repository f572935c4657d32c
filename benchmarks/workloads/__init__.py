"""What is measured: inputs and jobs."""
