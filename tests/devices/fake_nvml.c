/* A libnvidia-ml.so.1 without a driver. It answers what the file $FAKE_NVML says, read anew on every call, so that a
 * test changes the machine by replacing the file. Lines:
 *
 *   init CODE                              count NUMBER [CODE]
 *   sleep MILLISECONDS                     every question about a device takes so long, or until the file says less
 *   driver VERSION                         cuda NUMBER
 *   dev I handle CODE                      dev I uuid|name|pci TEXT
 *   dev I mem CODE TOTAL FREE USED         dev I mem2 CODE TOTAL RESERVED FREE USED
 *   dev I list CODE [insufficient]         dev I proc compute|graphics|mps PID|self BYTES
 *   mig PARENT I NUMBER GPU_INSTANCE COMPUTE_INSTANCE
 *
 * Codes are NVML's (nvml.h), 0 is success; devices that `count` does not reach are MIG instances. Each call of nvmlInit
 * adds a line to the file $FAKE_NVML_INITS. Compiled with -DOLD, it is the library of a driver of 2019.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 128, PROCESSES = 32, KINDS = 3, TEXT = 96 };
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LIBRARY_NOT_FOUND = 12 };

typedef unsigned long long bytes64;
typedef struct {
  int index;
} *handle;
typedef struct {
  unsigned pid;
  bytes64 bytes;
} process;
typedef struct {
  char uuid[TEXT], name[TEXT], pci[TEXT];
  int handle_code, memory_code, memory2_code, list_code, insufficient, parent, number, gpu_instance, compute_instance;
  bytes64 memory[3], memory2[4];
  process processes[KINDS][PROCESSES];
  unsigned listed[KINDS];
} device;

static struct {
  int init_code, count, count_code, cuda;
  long sleep;
  char driver[TEXT];
  device devices[DEVICES];
} machine;
static struct {
  int index;
} handles[DEVICES];

static void read_process(device *device, const char *text) {
  static const char *const kinds[KINDS] = {"compute", "graphics", "mps"};
  char kind[16], pid[24];
  bytes64 bytes;
  if (sscanf(text, "%15s %23s %llu", kind, pid, &bytes) != 3)
    return;
  for (int i = 0; i < KINDS; i++)
    if (!strcmp(kind, kinds[i]) && device->listed[i] < PROCESSES) {
      unsigned number = strcmp(pid, "self") ? (unsigned)strtoul(pid, NULL, 10) : (unsigned)getpid();
      device->processes[i][device->listed[i]++] = (process){number, bytes};
    }
}

static void read_device(device *device, const char *key, const char *text) {
  bytes64 *m = device->memory, *m2 = device->memory2;
  if (!strcmp(key, "handle"))
    device->handle_code = atoi(text);
  else if (!strcmp(key, "uuid"))
    snprintf(device->uuid, TEXT, "%s", text);
  else if (!strcmp(key, "name"))
    snprintf(device->name, TEXT, "%s", text);
  else if (!strcmp(key, "pci"))
    snprintf(device->pci, TEXT, "%s", text);
  else if (!strcmp(key, "mem"))
    sscanf(text, "%d %llu %llu %llu", &device->memory_code, m, m + 1, m + 2);
  else if (!strcmp(key, "mem2"))
    sscanf(text, "%d %llu %llu %llu %llu", &device->memory2_code, m2, m2 + 1, m2 + 2, m2 + 3);
  else if (!strcmp(key, "proc"))
    read_process(device, text);
  else if (!strcmp(key, "list")) {
    device->list_code = atoi(text);
    device->insufficient = strstr(text, "insufficient") != NULL;
  }
}

static void read_machine(void) {
  memset(&machine, 0, sizeof machine);
  machine.init_code = LIBRARY_NOT_FOUND;
  for (int i = 0; i < DEVICES; i++) {
    handles[i].index = i;
    machine.devices[i].parent = -1;
  }
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (!file)
    return;
  char line[256], key[16];
  while (fgets(line, sizeof line, file)) {
    int i, rest = 0, mig[5];
    line[strcspn(line, "\n")] = 0;
    sscanf(line, "init %d", &machine.init_code);
    sscanf(line, "count %d %d", &machine.count, &machine.count_code);
    sscanf(line, "sleep %ld", &machine.sleep);
    sscanf(line, "driver %95s", machine.driver);
    sscanf(line, "cuda %d", &machine.cuda);
    if (sscanf(line, "mig %d %d %d %d %d", mig, mig + 1, mig + 2, mig + 3, mig + 4) == 5) {
      device *instance = &machine.devices[mig[1]];
      instance->parent = mig[0];
      instance->number = mig[2];
      instance->gpu_instance = mig[3];
      instance->compute_instance = mig[4];
    }
    if (sscanf(line, "dev %d %15s %n", &i, key, &rest) == 2 && rest && i >= 0 && i < DEVICES)
      read_device(&machine.devices[i], key, line + rest);
  }
  fclose(file);
}

/* How long a question takes now, in milliseconds; whoever else is asking is not disturbed by the look. */
static long sleep_now(void) {
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[256];
  long milliseconds = 0;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "sleep %ld", &milliseconds) == 1)
      break;
  if (file)
    fclose(file);
  return milliseconds;
}

static device *asked(handle device) {
  for (long waited = 0; waited < sleep_now(); waited += 10)
    usleep(10000);
  read_machine();
  return &machine.devices[device->index];
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  const char *path = getenv("FAKE_NVML_INITS");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file) {
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
  }
  read_machine();
  return machine.init_code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == 4242 ? "\xff\xfe" : "Unknown Error"; }

int nvmlSystemGetDriverVersion(char *version, unsigned room) {
  read_machine();
  snprintf(version, room, "%s", machine.driver);
  return *machine.driver ? SUCCESS : NOT_FOUND;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  read_machine();
  *version = machine.cuda;
  return machine.cuda ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  read_machine();
  *count = (unsigned)machine.count;
  return machine.count_code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **found) {
  read_machine();
  if ((int)index >= machine.count)
    return INVALID_ARGUMENT;
  *found = &handles[index];
  return machine.devices[index].handle_code;
}
int nvmlDeviceGetUUID(handle device, char *text, unsigned room) {
  snprintf(text, room, "%s", asked(device)->uuid);
  return SUCCESS;
}
int nvmlDeviceGetName(handle device, char *text, unsigned room) {
  snprintf(text, room, "%s", asked(device)->name);
  return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(handle device, char *info) {
  const char *pci = asked(device)->pci;
  /* nvmlPciInfo_t begins with the short address of 16 bytes, has five numbers, and ends with the long address. */
  snprintf(info + 16 + 5 * sizeof(unsigned), 32, "%.31s", pci);
  return *pci ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(handle handle, bytes64 *answer) {
  device *device = asked(handle);
  memcpy(answer, device->memory, sizeof device->memory);
  return device->memory_code;
}

/* `stride` is the size of an entry: 16 bytes in the first version, 24 in the later ones. */
static int list(handle handle, unsigned *count, char *entries, int kind, size_t stride) {
  device *device = asked(handle);
  unsigned listed = device->listed[kind];
  if (device->list_code)
    return device->list_code;
  if (device->insufficient || *count < listed) {
    *count = listed + 1;
    return INSUFFICIENT_SIZE;
  }
  for (unsigned i = 0; i < listed; i++) {
    memset(entries + i * stride, 0xff, stride);
    memcpy(entries + i * stride, &device->processes[kind][i].pid, sizeof(unsigned));
    memcpy(entries + i * stride + 8, &device->processes[kind][i].bytes, sizeof(bytes64));
  }
  *count = listed;
  return SUCCESS;
}

#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses(handle device, unsigned *count, char *entries) {
  return list(device, count, entries, 0, 16);
}
int nvmlDeviceGetGraphicsRunningProcesses(handle device, unsigned *count, char *entries) {
  return list(device, count, entries, 1, 16);
}
#else
int nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, char *entries) {
  return list(device, count, entries, 0, 24);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, unsigned *count, char *entries) {
  return list(device, count, entries, 1, 24);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(handle device, unsigned *count, char *entries) {
  return list(device, count, entries, 2, 24);
}

int nvmlDeviceGetMemoryInfo_v2(handle handle, char *answer) {
  device *device = asked(handle);
  memcpy(answer + 8, device->memory2, sizeof device->memory2);
  return device->memory2_code;
}

int nvmlDeviceGetMigMode(handle device, unsigned *current, unsigned *pending) {
  read_machine();
  *current = *pending = 0;
  for (int i = 0; i < DEVICES; i++)
    if (machine.devices[i].parent == device->index)
      *current = *pending = 1;
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *count) {
  (void)device;
  *count = 7;
  return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned number, void **found) {
  read_machine();
  for (int i = 0; i < DEVICES; i++)
    if (machine.devices[i].parent == device->index && machine.devices[i].number == (int)number) {
      *found = &handles[i];
      return SUCCESS;
    }
  return NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(handle device, unsigned *id) {
  *id = (unsigned)asked(device)->gpu_instance;
  return SUCCESS;
}
int nvmlDeviceGetComputeInstanceId(handle device, unsigned *id) {
  *id = (unsigned)asked(device)->compute_instance;
  return SUCCESS;
}
#endif
