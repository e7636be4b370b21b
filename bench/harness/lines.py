"""Files of JSON lines."""

import json


class Unreadable(ValueError):
    """Which file, which line, and why."""


def read_objects(path, fields=()):
    """(number of the line, its object) of every line that is not empty. All have `fields`."""
    try:
        with open(path, encoding="ascii") as file:
            lines = file.readlines()
    except (OSError, UnicodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append((number, _object(f"{path}:{number}", line, fields)))
    return found


def _object(where, line, fields):
    try:
        value = json.loads(line)
    except ValueError as error:
        raise Unreadable(f"{where} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"{where} is no JSON object")
    missing = [name for name in fields if name not in value]
    if missing:
        raise Unreadable(f"{where} has no {', '.join(missing)}")
    return value
