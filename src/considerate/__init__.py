"""One-class collaborative filtering with random graphs."""
