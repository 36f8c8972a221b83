"""Servers for tests, each in its own process, from packages that pip installs."""
