"""``tablectl``: parse, call the facade, render. It decides nothing about tables."""
