"""What is measured, paired with what it is compared to, in one session: `make bench`."""
