/* Stub libnvidia-ml.so.1: NVML as nvidia-ml-py, torch and monitoring tools call it. Memory figures are the machine's,
 * as the stub runtime keeps them. A function that is not here is NVML_ERROR_FUNCTION_NOT_FOUND in nvidia-ml-py. */
#define _GNU_SOURCE
#include "faults.h"
#include "machine.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef int nvmlReturn;
typedef struct handle {
  char tag;
} *nvmlDevice;
typedef unsigned long long bytes64;
enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7,
  VERSION_MISMATCH = 25
};
#define VALUE_NOT_AVAILABLE (~0ull)
#define NO_INSTANCE 0xffffffffu

static struct handle handles[STUB_MAX_DEVICES];
static int initialised;

static struct stub_settings machine(void) {
  struct stub_settings settings;
  stub_read_settings(&settings);
  return settings;
}

static int number_of(nvmlDevice handle) {
  int count = machine().devices;
  for (int i = 0; i < count; i++)
    if (handle == &handles[i])
      return i;
  return -1;
}

#define FAULT()                                                                                                        \
  do {                                                                                                                 \
    int fault_ = stub_fault(__func__);                                                                                 \
    if (fault_)                                                                                                        \
      return fault_;                                                                                                   \
  } while (0)
#define NEED_INIT()                                                                                                    \
  FAULT();                                                                                                             \
  if (initialised <= 0)                                                                                                \
  return UNINITIALIZED
/* Gives the function `number` and `device`. */
#define NEED_DEVICE(handle)                                                                                            \
  NEED_INIT();                                                                                                         \
  const int number = number_of(handle);                                                                                \
  if (number < 0)                                                                                                      \
    return INVALID_ARGUMENT;                                                                                           \
  const struct stub_settings settings = machine();                                                                     \
  const struct stub_device_settings *device = &settings.device[number];                                                \
  (void)device
#define DEFINE_VALUE(function, type, expression)                                                                       \
  nvmlReturn function(nvmlDevice handle, type *value) {                                                                \
    NEED_DEVICE(handle);                                                                                               \
    *value = (type)(expression);                                                                                       \
    return SUCCESS;                                                                                                    \
  }

static nvmlReturn put_text(char *out, unsigned room, const char *text) {
  if (!out)
    return INVALID_ARGUMENT;
  if (strlen(text) + 1 > room)
    return INSUFFICIENT_SIZE;
  strcpy(out, text);
  return SUCCESS;
}

/* -------------------------------------------------------------- library */
nvmlReturn nvmlInitWithFlags(unsigned flags) {
  FAULT();
  initialised++;
  return SUCCESS;
}
nvmlReturn nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn nvmlInit(void) { return nvmlInitWithFlags(0); }
nvmlReturn nvmlShutdown(void) {
  NEED_INIT();
  initialised--;
  return SUCCESS;
}
const char *nvmlErrorString(nvmlReturn error) {
  switch (error) {
  case SUCCESS: return "Success";
  case UNINITIALIZED: return "Uninitialized";
  case INVALID_ARGUMENT: return "Invalid Argument";
  case NOT_SUPPORTED: return "Not Supported";
  case 4: return "Insufficient Permissions";
  case NOT_FOUND: return "Not Found";
  case INSUFFICIENT_SIZE: return "Insufficient Size";
  case 9: return "Driver Not Loaded";
  case 10: return "Timeout";
  case 13: return "Function Not Found";
  case 15: return "GPU is lost";
  case 18: return "Driver/library version mismatch";
  case 999: return "Unknown Error";
  default: return "Stub NVML error";
  }
}

/* --------------------------------------------------------------- system */
nvmlReturn nvmlSystemGetDriverVersion(char *version, unsigned room) {
  NEED_INIT();
  return put_text(version, room, machine().driver_version);
}
nvmlReturn nvmlSystemGetNVMLVersion(char *version, unsigned room) {
  NEED_INIT();
  char text[64];
  snprintf(text, sizeof text, "13.%s", machine().driver_version);
  return put_text(version, room, text);
}
nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *version) {
  FAULT();
  *version = machine().cuda_version;
  return SUCCESS;
}
nvmlReturn nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
nvmlReturn nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room) {
  NEED_INIT();
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return NOT_FOUND;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  snprintf(name, room, "%s", text);
  return SUCCESS;
}

/* -------------------------------------------------------------- handles */
nvmlReturn nvmlDeviceGetCount_v2(unsigned *count) {
  NEED_INIT();
  *count = (unsigned)machine().devices;
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *handle) {
  NEED_INIT();
  if (index >= (unsigned)machine().devices)
    return INVALID_ARGUMENT;
  *handle = &handles[index];
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice *handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *handle) {
  NEED_INIT();
  struct stub_settings settings = machine();
  for (int i = 0; i < settings.devices; i++)
    if (!strcasecmp(uuid, settings.device[i].uuid)) {
      *handle = &handles[i];
      return SUCCESS;
    }
  return NOT_FOUND;
}
nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice *handle) {
  NEED_INIT();
  struct stub_settings settings = machine();
  unsigned domain, bus, slot, other_domain, other_bus, other_slot;
  stub_parse_pci(text, &domain, &bus, &slot); /* as numbers: the domain may have four or eight digits */
  for (int i = 0; i < settings.devices; i++) {
    stub_parse_pci(settings.device[i].pci, &other_domain, &other_bus, &other_slot);
    if (domain == other_domain && bus == other_bus && slot == other_slot) {
      *handle = &handles[i];
      return SUCCESS;
    }
  }
  return NOT_FOUND;
}
nvmlReturn nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice *handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(text, handle);
}

/* ------------------------------------------------------------- identity */
nvmlReturn nvmlDeviceGetName(nvmlDevice handle, char *name, unsigned room) {
  NEED_DEVICE(handle);
  return put_text(name, room, device->name);
}
nvmlReturn nvmlDeviceGetUUID(nvmlDevice handle, char *uuid, unsigned room) {
  NEED_DEVICE(handle);
  return put_text(uuid, room, device->uuid);
}
struct pci_info {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice handle, struct pci_info *info) {
  NEED_DEVICE(handle);
  memset(info, 0, sizeof *info);
  stub_parse_pci(device->pci, &info->domain, &info->bus, &info->device);
  snprintf(info->id, sizeof info->id, "%s", device->pci);
  size_t length = strlen(device->pci);
  snprintf(info->legacy_id, sizeof info->legacy_id, "%.15s", device->pci + (length > 12 ? length - 12 : 0));
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetCudaComputeCapability(nvmlDevice handle, int *major, int *minor) {
  NEED_DEVICE(handle);
  *major = (int)device->cc_major;
  *minor = (int)device->cc_minor;
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetSerial(nvmlDevice handle, char *serial, unsigned room) {
  NEED_DEVICE(handle);
  return NOT_SUPPORTED;
}
DEFINE_VALUE(nvmlDeviceGetIndex, unsigned, number)
DEFINE_VALUE(nvmlDeviceGetMinorNumber, unsigned, number)
DEFINE_VALUE(nvmlDeviceGetBrand, unsigned, 5)
DEFINE_VALUE(nvmlDeviceGetArchitecture, unsigned, 7)
DEFINE_VALUE(nvmlDeviceGetNumGpuCores, unsigned, device->sm_count * 128)

/* --------------------------------------------------------------- memory */
struct memory_info {
  bytes64 total, free, used;
};
struct memory_info_v2 {
  unsigned version;
  bytes64 total, reserved, free, used;
};
nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice handle, struct memory_info *info) {
  NEED_DEVICE(handle);
  struct stub_usage usage;
  stub_usage(number, &usage);
  info->total = device->total;
  info->used = usage.used + device->reserved; /* the old call counts the driver's reserve as used */
  info->free = info->total > info->used ? info->total - info->used : 0;
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice handle, struct memory_info_v2 *info) {
  NEED_DEVICE(handle);
  if (info->version != (2u << 24 | sizeof *info))
    return VERSION_MISMATCH;
  struct stub_usage usage;
  stub_usage(number, &usage);
  info->total = device->total;
  info->reserved = device->reserved;
  info->used = usage.used;
  info->free = info->total > info->used + info->reserved ? info->total - info->used - info->reserved : 0;
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetBAR1MemoryInfo(nvmlDevice handle, struct memory_info *info) {
  NEED_DEVICE(handle);
  *info = (struct memory_info){.total = 256 * STUB_MIB, .free = 250 * STUB_MIB, .used = 6 * STUB_MIB};
  return SUCCESS;
}

/* ------------------------------------------------------------ processes */
struct process_info {
  unsigned pid;
  bytes64 used;
};
struct process_info_v2 {
  unsigned pid;
  bytes64 used;
  unsigned gpu_instance, compute_instance;
};
static nvmlReturn list_processes(int number, unsigned *count, void *out, int version) {
  enum stub_processes told = machine().processes;
  struct stub_usage usage;
  stub_usage(number, &usage);
  unsigned room = *count;
  *count = told == STUB_PROCESSES_HIDDEN ? 0 : (unsigned)usage.processes;
  if (*count == 0)
    return SUCCESS;
  if (!out || room < *count)
    return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++) {
    unsigned pid = (unsigned)usage.process[i].pid;
    bytes64 used = told == STUB_PROCESSES_UNSIZED ? VALUE_NOT_AVAILABLE : usage.process[i].bytes;
    if (version == 1)
      ((struct process_info *)out)[i] = (struct process_info){pid, used};
    else
      ((struct process_info_v2 *)out)[i] = (struct process_info_v2){pid, used, NO_INSTANCE, NO_INSTANCE};
  }
  return SUCCESS;
}
#define DEFINE_PROCESS_LIST(function, version)                                                                         \
  nvmlReturn function(nvmlDevice handle, unsigned *count, void *out) {                                                 \
    NEED_DEVICE(handle);                                                                                               \
    return list_processes(number, count, out, version);                                                                \
  }
DEFINE_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, 1)
DEFINE_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, 2)
DEFINE_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, 3)
#define DEFINE_EMPTY_LIST(function)                                                                                    \
  nvmlReturn function(nvmlDevice handle, unsigned *count, void *out) {                                                 \
    NEED_DEVICE(handle);                                                                                               \
    *count = 0;                                                                                                        \
    return SUCCESS;                                                                                                    \
  }
DEFINE_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses)
DEFINE_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2)
DEFINE_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3)
DEFINE_EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3)
nvmlReturn nvmlDeviceGetProcessUtilization(nvmlDevice handle, void *out, unsigned *count, bytes64 since) {
  NEED_DEVICE(handle);
  *count = 0;
  return NOT_FOUND;
}

/* ------------------------------------------------------ state and clocks */
nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice handle, unsigned rates[2]) {
  NEED_DEVICE(handle);
  rates[0] = device->util_gpu;
  rates[1] = device->util_mem;
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetTemperature(nvmlDevice handle, unsigned sensor, unsigned *celsius) {
  NEED_DEVICE(handle);
  *celsius = device->temperature;
  return SUCCESS;
}
struct temperature {
  unsigned version, sensor;
  int celsius;
};
nvmlReturn nvmlDeviceGetTemperatureV(nvmlDevice handle, struct temperature *temperature) {
  NEED_DEVICE(handle);
  temperature->celsius = (int)device->temperature;
  return SUCCESS;
}
enum { CLOCK_MEMORY = 2 };
nvmlReturn nvmlDeviceGetClockInfo(nvmlDevice handle, unsigned clock, unsigned *megahertz) {
  NEED_DEVICE(handle);
  *megahertz = clock == CLOCK_MEMORY ? 7501 : 1777;
  return SUCCESS;
}
nvmlReturn nvmlDeviceGetMaxClockInfo(nvmlDevice handle, unsigned clock, unsigned *megahertz) {
  NEED_DEVICE(handle);
  *megahertz = clock == CLOCK_MEMORY ? 7501 : 2100;
  return SUCCESS;
}
DEFINE_VALUE(nvmlDeviceGetPowerUsage, unsigned, device->power_mw)
DEFINE_VALUE(nvmlDeviceGetEnforcedPowerLimit, unsigned, device->power_limit_mw)
DEFINE_VALUE(nvmlDeviceGetPowerManagementLimit, unsigned, device->power_limit_mw)
DEFINE_VALUE(nvmlDeviceGetTotalEnergyConsumption, bytes64, 123456)
DEFINE_VALUE(nvmlDeviceGetFanSpeed, unsigned, 30)
DEFINE_VALUE(nvmlDeviceGetPerformanceState, unsigned, 8)
DEFINE_VALUE(nvmlDeviceGetPersistenceMode, unsigned, 0)
DEFINE_VALUE(nvmlDeviceGetComputeMode, unsigned, 0)
DEFINE_VALUE(nvmlDeviceGetDisplayActive, unsigned, 0)
DEFINE_VALUE(nvmlDeviceGetDisplayMode, unsigned, 0)
DEFINE_VALUE(nvmlDeviceGetMemoryBusWidth, unsigned, 192)
DEFINE_VALUE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 4)
DEFINE_VALUE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
#define DEFINE_NOT_SUPPORTED(function, ...)                                                                            \
  nvmlReturn function(nvmlDevice handle, __VA_ARGS__) {                                                                \
    NEED_DEVICE(handle);                                                                                               \
    return NOT_SUPPORTED;                                                                                              \
  }
DEFINE_NOT_SUPPORTED(nvmlDeviceGetMigMode, unsigned *current, unsigned *pending)
DEFINE_NOT_SUPPORTED(nvmlDeviceGetEccMode, unsigned *current, unsigned *pending)
DEFINE_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned link, unsigned *type)
DEFINE_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2, unsigned link, void *info)
