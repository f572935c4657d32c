"""HTTP client and its errors."""
