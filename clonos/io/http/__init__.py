"""The HTTP client and its errors."""
