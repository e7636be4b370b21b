"""An arm as a live process that answers lines with JSON."""

import json
import pathlib
import queue
import re
import subprocess
import tempfile
import threading


COMPLAINT = re.compile("warn|error|leak|fail", re.IGNORECASE)
MOST_COMPLAINTS = 5
LIBRARY = re.compile(r"/lib(cudnn|cublas|cublasLt|nccl|cudart|cuda|longspan)\.so")


class ArmFailed(RuntimeError):
    """What the arm said, or how it ended."""


def parsed(line):
    """The answer in a line, or None: libraries may print to standard output too."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and "event" in answer else None


class ArmProcess:
    """Started at once; `ready()` waits for its first answer. One user at a time."""

    patience = 10  # seconds that a process has to end in

    def __init__(self, command, environment=None):
        self.errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self.lines = queue.Queue()
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
                env=environment,
            )
        except OSError as error:
            raise ArmFailed(f"cannot start {command[0]}: {error.strerror}") from error
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _answer(self, event, timeout):
        try:
            while True:
                line = self.lines.get(timeout=timeout)
                if line is None:
                    raise ArmFailed(f"ended without an answer: {self._last_words()}")
                answer = parsed(line)
                if answer is not None:
                    break
        except queue.Empty:
            raise ArmFailed(f"no answer to '{event}' within {timeout:.0f} s") from None
        if answer["event"] == "error":
            raise ArmFailed(answer["message"])
        if answer["event"] != event:
            raise ArmFailed(f"answered '{answer['event']}' to '{event}'")
        return answer

    def libraries(self):
        """Paths of the CUDA libraries in the process."""
        try:
            maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8")
        except OSError:
            return []
        paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if LIBRARY.search(line)}
        return sorted(paths)

    def _error_lines(self):
        self.errors.seek(0)
        return [line for line in self.errors.read().splitlines() if line.strip()]

    def _last_words(self):
        try:
            code = self.process.wait(timeout=self.patience)
        except subprocess.TimeoutExpired:
            return f"it answers no more, but has not ended after {self.patience} s"
        lines = self._error_lines()
        return f"exit code {code}; {' | '.join(lines[-3:]) or 'nothing on standard error'}"

    def ready(self, timeout):
        return self._answer("ready", timeout)

    def ask(self, line, timeout):
        self.send(line)
        return self.receive(line, timeout)

    def send(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise ArmFailed(f"is gone: {self._last_words()}") from error

    def receive(self, line, timeout):
        """The answer to a line that was sent."""
        return self._answer(line.split()[0], timeout)

    def end(self):
        """Asks it to leave, and makes it when `patience` has run out. Returns what it complained of
        on standard error, its shutdown included, and nothing when it is called again."""
        if self.errors.closed:
            return []
        try:
            with self.process.stdin as stdin:
                stdin.write("end\n")
        except OSError:
            pass  # it has left
        try:
            self.process.wait(timeout=self.patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        complaints = [line for line in self._error_lines() if COMPLAINT.search(line)]
        self.errors.close()
        return complaints[:MOST_COMPLAINTS]
