"""The local cloud: the stack of a template, played on one machine."""
