"""The claims that the project makes about itself, one folder a part, and what the tests share."""
