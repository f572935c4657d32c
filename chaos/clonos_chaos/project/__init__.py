"""What tests this project with simulated worlds and real processes: in a checkout, not in the wheel."""
