"""The processes of a peer: rank 0 talks to the driver, the others do what it says."""

import datetime
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as distributed

RANK = "LONGSPAN_PEER_RANK"
RENDEZVOUS = "LONGSPAN_PEER_RENDEZVOUS"
DEADLINE = datetime.timedelta(seconds=120)


class Ranks:
    """With one rank there is no process group."""

    def __init__(self, count):
        self.count = count
        self.rank = int(os.environ.get(RANK, "0"))
        self.children = []
        self.folder = None
        torch.cuda.set_device(self.rank % torch.cuda.device_count())
        if count > 1:
            self._join()

    def _join(self):
        if self.rank == 0:
            # A new file in a new folder: no port to share, nothing stale to meet.
            self.folder = tempfile.TemporaryDirectory(prefix="longspan-peer-")
            os.environ[RENDEZVOUS] = os.path.join(self.folder.name, "ranks")
            for rank in range(1, self.count):
                self.children.append(subprocess.Popen(
                    [sys.executable, *sys.argv], stdin=subprocess.DEVNULL, stdout=sys.stderr,
                    env={**os.environ, RANK: str(rank)}))
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl", init_method=f"file://{os.environ[RENDEZVOUS]}", rank=self.rank,
            world_size=self.count, timeout=DEADLINE,
            device_id=torch.device("cuda", torch.cuda.current_device()))
        # Words between ranks; they may wait long for the driver.
        self.words = distributed.new_group(backend="gloo", timeout=datetime.timedelta(days=1))

    @property
    def gpus(self):
        return min(self.count, torch.cuda.device_count())

    def broadcast(self, word):
        """Rank 0's word, on every rank."""
        if self.count == 1:
            return word
        box = [word]
        distributed.broadcast_object_list(box, 0, group=self.words, device=torch.device("cpu"))
        return box[0]

    def gather(self, value):
        """Every rank's value, on every rank."""
        if self.count == 1:
            return [value]
        values = [None] * self.count
        distributed.all_gather_object(values, value, group=self.words)
        return values

    def leave(self):
        for child in self.children:
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                child.kill()
        if self.folder is not None:
            self.folder.cleanup()
