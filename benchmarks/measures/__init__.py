"""One benchmark a module."""
