"""Mesh axes over which the values of an array vary, inside ``shard_map``."""

import jax

from longspan._errors import InvalidArgument


def _check_order(axis_name) -> None:
    """ppermute counts devices in the order of the mesh, whatever that of the names."""
    if isinstance(axis_name, str):
        return
    mesh = jax.sharding.get_abstract_mesh().axis_names
    known = [name for name in mesh if name in axis_name]
    if known != [name for name in axis_name if name in mesh]:
        raise InvalidArgument(
            f"axis_name is {axis_name!r}, and the mesh has these axes in the order "
            f"{tuple(known)!r}; name them, and lay the sequence out, in that order"
        )


def size(axis_name) -> int:
    """Devices on the axis; 1 without one."""
    if axis_name is None:
        return 1
    _check_order(axis_name)
    try:
        return jax.lax.axis_size(axis_name)
    except NameError:
        raise InvalidArgument(
            f"axis_name is {axis_name!r}, and no such mesh axis is bound here; call attention "
            "inside jax.shard_map over a mesh that has it"
        ) from None


def _varying(x) -> frozenset:
    return jax.typeof(x).manual_axis_type.varying


def union(*arrays) -> frozenset:
    """All axes over which one of the arrays varies; none outside ``shard_map``."""
    return frozenset().union(*(_varying(x) for x in arrays))


def vary(arrays, axes: frozenset) -> tuple:
    """The arrays (or None), varying over all of ``axes``. Gradients of those that did not are added
    up."""
    result = []
    for x in arrays:
        if x is None:
            result.append(x)
            continue
        missing = tuple(sorted(axes - _varying(x)))
        result.append(jax.lax.pcast(x, missing, to="varying") if missing else x)
    return tuple(result)
