"""The referee sees each promise break: conditions are taken from a copy, and it says BROKEN."""
