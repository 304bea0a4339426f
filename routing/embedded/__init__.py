"""The model that comes with the installation, so that a fresh machine can answer."""
