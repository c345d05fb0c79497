/* What the machine looks like: read from STUBCUDA_CONFIG and from the control file that STUBCUDA_CONTROL names. */
#ifndef STUB_SETTINGS_H
#define STUB_SETTINGS_H
#include <stdint.h>

#define STUB_MAX_DEVICES 8
#define STUB_MIB (1024ull * 1024ull)

/* How NVML tells of the processes on a device: as on a plain Linux host, without their sizes (WSL), or not at all
 * (another PID namespace). */
enum stub_processes { STUB_PROCESSES_LISTED, STUB_PROCESSES_UNSIZED, STUB_PROCESSES_HIDDEN };

struct stub_device_settings {
  int index;                                   /* place in the machine, whatever CUDA_VISIBLE_DEVICES makes of it */
  uint64_t total, reserved, context, baseline; /* bytes */
  char name[96], uuid[64], pci[32];
  unsigned util_gpu, util_mem, temperature, power_mw, power_limit_mw, sm_count, cc_major, cc_minor;
};

struct stub_settings {
  int devices;
  struct stub_device_settings device[STUB_MAX_DEVICES];
  char driver_version[32];
  int cuda_version;
  int discard_data; /* copies move no bytes */
  int kernels_fail; /* launches return an error instead of doing nothing */
  enum stub_processes processes;
};

/* Reads the control file again if it changed, and copies the settings out. */
void stub_read_settings(struct stub_settings *out);

void stub_parse_pci(const char *text, unsigned *domain, unsigned *bus, unsigned *device);
#endif
