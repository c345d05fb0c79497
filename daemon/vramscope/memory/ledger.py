"""The ledger: every byte of a device has exactly one owner, so the owners always add up to the device's total."""

from vramscope.memory.snapshot import DeviceSnapshot, DriverMemory, ModelSnapshot

PARAMETERS = "parameters"
BUFFERS = "buffers"
ALLOCATOR_ROUNDING = "allocator_rounding"
ALLOCATOR_CACHE = "allocator_cache"
CUDA_CONTEXT = "cuda_context"
OTHER_PROCESSES = "other_processes"
OUTSIDE_ALLOCATOR = "outside_allocator"
DRIVER_RESERVED = "driver_reserved"
FREE = "free"


def ledger(
    device: DeviceSnapshot, driver: DriverMemory | None, models: tuple[ModelSnapshot, ...]
) -> dict[str, int] | None:
    """Owner to bytes for one device; none is negative, and they sum to the driver's total.

    None where the total is not known, and where the figures cannot be of one moment: more reserved than is in use, or
    tensors that are larger than what is allocated. See memory/differences.py for what is said of that.

    Where the driver does not tell this process's own use (WSL, another PID namespace, MIG) and nobody measured it, or
    what is told cannot be, the CUDA context and other processes cannot be told apart and are one owner,
    `outside_allocator`. A driver that does not tell what it keeps for itself counts that as used. Device and driver
    must have been looked at between two changes of this process's memory.
    """
    if driver is None or driver.total_bytes is None or driver.used_bytes is None:
        return None
    allocator = device.allocator
    parameters = sum(model.bytes_on(device.device)[0] for model in models)
    buffers = sum(model.bytes_on(device.device)[1] for model in models)
    owners = {
        PARAMETERS: parameters,
        BUFFERS: buffers,
        ALLOCATOR_ROUNDING: allocator.allocated_bytes - parameters - buffers,
        ALLOCATOR_CACHE: allocator.reserved_bytes - allocator.allocated_bytes,
    }
    own = driver.process_used_bytes
    if own is None and not device.is_open:
        own = 0  # a process without a context is on no list, and uses nothing
    if own is None or not allocator.reserved_bytes <= own <= driver.used_bytes:
        owners[OUTSIDE_ALLOCATOR] = driver.used_bytes - allocator.reserved_bytes
    else:
        owners[CUDA_CONTEXT] = own - allocator.reserved_bytes
        owners[OTHER_PROCESSES] = driver.used_bytes - own
    if driver.reserved_bytes is not None:
        owners[DRIVER_RESERVED] = driver.reserved_bytes
    owners[FREE] = driver.total_bytes - driver.used_bytes - (driver.reserved_bytes or 0)
    return owners if min(owners.values()) >= 0 else None
