"""`init`: the stack's shared parts into a project, and one job more; never over what is there."""
