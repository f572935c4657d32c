"""What users test their own jobs with."""
