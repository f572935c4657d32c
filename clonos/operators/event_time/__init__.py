"""Event time: timestamps of records, watermarks of sources, and the order in which timers fire."""
