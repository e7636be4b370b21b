"""Communicators over torch's process groups."""

import ctypes
import datetime
import socket
from typing import TypeAlias

import torch
import torch.distributed as dist

from longspan import _native
from longspan._errors import InvalidArgument


Group: TypeAlias = dist.ProcessGroup | dist.DeviceMesh | None


def process_group(group: Group) -> dist.ProcessGroup | None:
    """The ProcessGroup of a group, of a one-dimensional DeviceMesh, or None."""
    if group is None or isinstance(group, dist.ProcessGroup):
        return group
    if isinstance(group, dist.DeviceMesh):
        if group.ndim != 1:
            raise InvalidArgument(
                f"the DeviceMesh has {group.ndim} dimensions; give the one that sequences are "
                "split over: mesh['name']"
            )
        return group.get_group()
    raise InvalidArgument(
        f"group is a {type(group).__name__}; it must be a torch ProcessGroup, a DeviceMesh or None"
    )


def _nodes(group) -> list[int]:
    """The host of each rank, hosts numbered in order of appearance."""
    hosts = [None] * group.size()
    dist.all_gather_object(hosts, socket.gethostname(), group=group)
    numbers: dict[str, int] = {}
    return [numbers.setdefault(host, len(numbers)) for host in hosts]


def _host_bytes(address: int, count: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_char * count).from_address(address), dtype=torch.uint8)


class _Transfers:
    """Moves host memory over a process group. Groups that take no tensors of the host, as NCCL's,
    move them through ``device``."""

    def __init__(self, group, device):
        self._group = group
        self._device = device
        self._requests: dict = {}
        self._to_self: dict = {}
        self._next = 0

    def start(self, transfers) -> int:
        works, copies = [], []
        for sends, peer, tag, address, count in transfers:
            if count == 0:
                continue
            memory = _host_bytes(address, count)
            if peer == self._group.rank():
                self._move_to_self(sends, tag, memory)
                continue
            moved = memory if self._device.type == "cpu" else self._staged(sends, memory)
            post = dist.isend if sends else dist.irecv
            ranks = {"group_dst" if sends else "group_src": peer}
            works.append((peer, post(moved, group=self._group, tag=tag, **ranks)))
            if moved is not memory and not sends:
                copies.append((memory, moved))
        self._next += 1
        self._requests[self._next] = (works, copies)
        return self._next

    def wait(self, request: int, milliseconds: int) -> str:
        works, copies = self._requests.pop(request)
        limit = datetime.timedelta(milliseconds=milliseconds)
        for peer, work in works:
            try:
                work.wait(limit)
            except RuntimeError as error:
                return f"rank {peer} did not answer within {milliseconds} ms: {error}"
        for memory, moved in copies:
            memory.copy_(moved)
        return ""

    def _staged(self, sends, memory):
        return memory.to(self._device) if sends else torch.empty_like(memory, device=self._device)

    def _move_to_self(self, sends, tag, memory):
        waiting = self._to_self.setdefault(tag, [])
        if not waiting or waiting[0][0] == sends:
            waiting.append((sends, memory))
            return
        _, other = waiting.pop(0)
        source, target = (memory, other) if sends else (other, memory)
        target.copy_(source)


def _staging_device(group) -> torch.device:
    """cpu where the group moves host tensors, else the device that it moves."""
    kinds = {device.type for device in group._device_types}
    return torch.device("cpu" if "cpu" in kinds else next(iter(kinds)))


def communicator_of(group, device: torch.device, name: str):
    """A communicator whose ranks are those of ``group``. Collective."""
    names = ("auto", "peer", "nccl") if device.type == "cuda" else ("auto", "callback")
    if name not in names:
        raise InvalidArgument(
            f"communicator is '{name}'; for tensors on {device} it must be {' or '.join(names)}"
        )
    if group is None:
        return _native.threads_communicators(1, 1)[0]
    nodes = _nodes(group)
    transfers = _Transfers(group, _staging_device(group))
    host = _native.callback_communicator(group.rank(), nodes, transfers.start, transfers.wait)
    if device.type == "cpu":
        return host
    if name == "auto":
        name = "peer" if max(nodes) == 0 else "nccl"
    make = _native.peer_communicator if name == "peer" else _native.nccl_communicator
    return make(host, device.index)
