"""The command line, over ``operations`` and its neighbours. Imported by no handler."""
