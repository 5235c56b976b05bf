"""What only our own tests need; what users need as well lives in `reactor_coord.testing`."""
