"""One file a command group; each is loaded when one of its commands is called."""
