"""Storage: files written whole or not at all, the container of models, and folders at any address."""
