"""What is raised here."""


class Refused(Exception):
    """Something cannot be prepared; the message says what to change."""
