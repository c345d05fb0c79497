/* Stub libcuda.so.1: as much of the driver API as torch asks for. */
#define _GNU_SOURCE
#include "driver.h"
#include "devices.h"
#include "faults.h"
#include "machine.h"
#include "memory.h"
#include "trace.h"
#include <cuda.h>
/* cuda.h renames these to their second versions; both names are defined here. */
#undef cuGetProcAddress
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define API CUresult CUDAAPI
#define FAULT()                                                                                                        \
  do {                                                                                                                 \
    int fault_ = stub_fault(__func__);                                                                                 \
    if (fault_)                                                                                                        \
      return (CUresult)fault_;                                                                                         \
  } while (0)

static struct stub_settings visible(void) {
  struct stub_settings settings;
  stub_visible_settings(&settings);
  return settings;
}

static CUresult result_of(int outcome) {
  return outcome == STUB_OK        ? CUDA_SUCCESS
         : outcome == STUB_NO_ROOM ? CUDA_ERROR_OUT_OF_MEMORY
                                   : CUDA_ERROR_INVALID_VALUE;
}

/* A process that ends in order gives everything back; one that is killed is noticed by its pid. */
__attribute__((destructor)) static void leave(void) { stub_leave(); }

/* ------------------------------------------------------------- devices */
API cuInit(unsigned flags) {
  FAULT();
  return visible().devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API cuDriverGetVersion(int *version) {
  *version = visible().cuda_version;
  return CUDA_SUCCESS;
}
API cuDeviceGetCount(int *count) {
  FAULT();
  *count = visible().devices;
  return CUDA_SUCCESS;
}
API cuDeviceGet(CUdevice *device, int ordinal) {
  FAULT();
  if (ordinal < 0 || ordinal >= visible().devices)
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
API cuDeviceGetName(char *name, int room, CUdevice device) {
  snprintf(name, (size_t)room, "%s", visible().device[device].name);
  return CUDA_SUCCESS;
}
API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  stub_device_room(device, NULL, bytes);
  return CUDA_SUCCESS;
}
API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  stub_uuid_bytes(device, uuid->bytes);
  return CUDA_SUCCESS;
}

static int attribute(CUdevice_attribute wanted, const struct stub_device_settings *device) {
  unsigned domain, bus, slot;
  stub_parse_pci(device->pci, &domain, &bus, &slot);
  switch (wanted) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return (int)device->cc_major;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return (int)device->cc_minor;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return (int)device->sm_count;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 1536;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 101376;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return 65536;
  case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
  case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return (int)domain;
  case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return (int)bus;
  case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return (int)slot;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1777000;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 7501000;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 192;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 2359296;
  default: return 0;
  }
}
API cuDeviceGetAttribute(int *value, CUdevice_attribute wanted, CUdevice device) {
  struct stub_settings settings = visible();
  *value = attribute(wanted, &settings.device[device]);
  return CUDA_SUCCESS;
}
API cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  struct stub_settings settings = visible();
  *major = (int)settings.device[device].cc_major;
  *minor = (int)settings.device[device].cc_minor;
  return CUDA_SUCCESS;
}

/* ------------------------------------------------------------ contexts */
static char context_tags[STUB_MAX_DEVICES];
static __thread CUcontext current_context;

API cuCtxGetCurrent(CUcontext *context) {
  *context = current_context;
  return CUDA_SUCCESS;
}
API cuCtxSetCurrent(CUcontext context) {
  current_context = context;
  return CUDA_SUCCESS;
}
API cuCtxPushCurrent_v2(CUcontext context) { return cuCtxSetCurrent(context); }
API cuCtxPopCurrent_v2(CUcontext *context) { return context ? cuCtxGetCurrent(context) : CUDA_SUCCESS; }
API cuCtxGetDevice(CUdevice *device) {
  *device = stub_current_device();
  return CUDA_SUCCESS;
}
API cuCtxSynchronize(void) {
  FAULT();
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  struct stub_usage usage;
  stub_usage(stub_place(device), &usage);
  if (flags)
    *flags = 0;
  *active = 0;
  for (int i = 0; i < usage.processes; i++)
    if (usage.process[i].pid == getpid())
      *active = 1;
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  FAULT();
  if (stub_make_context(stub_place(device)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *context = (CUcontext)&context_tags[device];
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(CUdevice device) { return CUDA_SUCCESS; }

/* -------------------------------------------------------------- memory */
API cuMemGetInfo_v2(size_t *available, size_t *total) {
  FAULT();
  stub_device_room(stub_current_device(), available, total);
  return CUDA_SUCCESS;
}
API cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  FAULT();
  void *start;
  int outcome = stub_device_alloc(stub_current_device(), &start, size);
  *address = (CUdeviceptr)start;
  return result_of(outcome);
}
API cuMemFree_v2(CUdeviceptr address) {
  FAULT();
  return result_of(stub_device_free((void *)address));
}
API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  FAULT();
  stub_copy((void *)to, from, size);
  return CUDA_SUCCESS;
}
API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  FAULT();
  stub_copy(to, (void *)from, size);
  return CUDA_SUCCESS;
}
API cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  void *base;
  if (stub_device_find((void *)address, &base, size) < 0)
    return CUDA_ERROR_NOT_FOUND;
  if (start)
    *start = (CUdeviceptr)base;
  return CUDA_SUCCESS;
}
API cuPointerGetAttribute(void *value, CUpointer_attribute wanted, CUdeviceptr address) {
  int device = stub_device_find((void *)address, NULL, NULL);
  switch (wanted) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    if (device < 0)
      return CUDA_ERROR_INVALID_VALUE;
    *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    if (device < 0)
      return CUDA_ERROR_INVALID_VALUE;
    *(int *)value = device;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
  case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(void **)value = (void *)address; return CUDA_SUCCESS;
  default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

/* -------------------------------------------------------------- errors */
API cuGetErrorString(CUresult error, const char **text) {
  switch (error) {
  case CUDA_SUCCESS: *text = "no error"; break;
  case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
  case CUDA_ERROR_NOT_SUPPORTED: *text = "operation not supported (stub)"; break;
  default: *text = "stub driver error";
  }
  return CUDA_SUCCESS;
}
API cuGetErrorName(CUresult error, const char **name) {
  switch (error) {
  case CUDA_SUCCESS: *name = "CUDA_SUCCESS"; break;
  case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
  default: *name = "CUDA_ERROR_STUB";
  }
  return CUDA_SUCCESS;
}

/* ----------------------------------------------------- finding functions */
static CUresult unsupported(void) {
  stub_trace("{\"op\":\"unsupported driver function\"}");
  return CUDA_ERROR_NOT_SUPPORTED;
}

void *stub_driver_symbol(const char *name) {
  static void *this_library;
  Dl_info info;
  if (!this_library && dladdr((void *)stub_driver_symbol, &info))
    this_library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  char versioned[128];
  void *found = NULL;
  for (int version = 3; !found && version > 1; version--) {
    snprintf(versioned, sizeof versioned, "%s_v%d", name, version);
    found = dlsym(this_library, versioned);
  }
  if (!found)
    found = dlsym(this_library, name);
  if (found)
    return found;
  stub_trace("{\"op\":\"unknown driver function\",\"name\":\"%s\"}", name);
  return (void *)unsupported;
}
API cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *outcome) {
  *function = stub_driver_symbol(name);
  if (outcome)
    *outcome = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}
API cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
