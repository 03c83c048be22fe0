"""The doctor: reads a template offline and says what will hurt, where, why, and what to write."""
