"""A SAM template as data that knows its lines. Read by the local cloud and by the doctor."""
