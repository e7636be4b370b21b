"""A second, independent reader and writer of safetensors for the tests."""

import json
import struct

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1}


def tensor(dtype, shape, data=None):
    count = SIZES[dtype]
    for extent in shape:
        count *= extent
    return dtype, list(shape), bytes(count) if data is None else data


def integers(values):
    return tensor("I32", [len(values)], struct.pack(f"<{len(values)}i", *values))


def write(path, tensors, metadata=None):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    write_raw(path, json.dumps(header).encode(), data)


def write_raw(path, header, data):
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    data = content[8 + length :]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors, metadata
