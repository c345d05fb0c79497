#define _GNU_SOURCE
#include "settings.h"
#include "faults.h"
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stub_settings settings;
static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;

static void set_defaults(void) {
  memset(&settings, 0, sizeof settings);
  settings.devices = 1;
  settings.cuda_version = 13000;
  settings.kernels_fail = 1; /* doing nothing would leave wrong numbers behind without a word */
  strcpy(settings.driver_version, "580.65.06");
  for (int i = 0; i < STUB_MAX_DEVICES; i++) {
    struct stub_device_settings *device = &settings.device[i];
    device->index = i;
    device->total = 12288 * STUB_MIB;
    device->context = 128 * STUB_MIB;
    device->sm_count = 28;
    device->cc_major = 8;
    device->cc_minor = 6;
    device->temperature = 40;
    device->power_mw = 20000;
    device->power_limit_mw = 170000;
    strcpy(device->name, "Stub GeForce RTX 3060");
    snprintf(device->uuid, sizeof device->uuid, "GPU-57ab0000-0000-4000-8000-%012x", i);
    snprintf(device->pci, sizeof device->pci, "00000000:%02X:00.0", i + 1);
  }
}

/* ------------------------------------------------------------- the keys */
#define FIELD(name) offsetof(struct stub_device_settings, name)
static const struct {
  const char *key;
  size_t offset;
} MIB_KEYS[] = {{"total_mib", FIELD(total)},
                {"reserved_mib", FIELD(reserved)},
                {"context_mib", FIELD(context)},
                {"baseline_mib", FIELD(baseline)}},
  NUMBER_KEYS[] = {{"util_gpu", FIELD(util_gpu)},
                   {"util_mem", FIELD(util_mem)},
                   {"temperature", FIELD(temperature)},
                   {"power_mw", FIELD(power_mw)},
                   {"sm_count", FIELD(sm_count)}};
static const struct {
  const char *key;
  size_t offset, room;
} TEXT_KEYS[] = {{"name", FIELD(name), sizeof settings.device[0].name},
                 {"uuid", FIELD(uuid), sizeof settings.device[0].uuid},
                 {"pci", FIELD(pci), sizeof settings.device[0].pci}};
#define LENGTH(array) (sizeof(array) / sizeof *(array))

static void set_device_key(struct stub_device_settings *device, const char *key, const char *value) {
  char *base = (char *)device;
  for (size_t i = 0; i < LENGTH(MIB_KEYS); i++)
    if (!strcmp(key, MIB_KEYS[i].key))
      *(uint64_t *)(base + MIB_KEYS[i].offset) = (uint64_t)(atof(value) * (double)STUB_MIB);
  for (size_t i = 0; i < LENGTH(NUMBER_KEYS); i++)
    if (!strcmp(key, NUMBER_KEYS[i].key))
      *(unsigned *)(base + NUMBER_KEYS[i].offset) = (unsigned)atoi(value);
  for (size_t i = 0; i < LENGTH(TEXT_KEYS); i++)
    if (!strcmp(key, TEXT_KEYS[i].key))
      snprintf(base + TEXT_KEYS[i].offset, TEXT_KEYS[i].room, "%s", value);
  if (!strcmp(key, "cc"))
    sscanf(value, "%u.%u", &device->cc_major, &device->cc_minor);
}

/* Keys of the machine as a whole; 1 if it was one. */
static int set_machine_key(const char *key, const char *value) {
  if (!strcmp(key, "devices")) {
    int count = atoi(value);
    settings.devices = count < 0 ? 0 : count > STUB_MAX_DEVICES ? STUB_MAX_DEVICES : count;
  } else if (!strcmp(key, "driver_version"))
    snprintf(settings.driver_version, sizeof settings.driver_version, "%s", value);
  else if (!strcmp(key, "cuda_version"))
    settings.cuda_version = atoi(value);
  else if (!strcmp(key, "data"))
    settings.discard_data = !strcmp(value, "discard");
  else if (!strcmp(key, "kernels"))
    settings.kernels_fail = strcmp(value, "noop") != 0;
  else if (!strcmp(key, "processes"))
    settings.processes = !strcmp(value, "unsized")  ? STUB_PROCESSES_UNSIZED
                         : !strcmp(value, "hidden") ? STUB_PROCESSES_HIDDEN
                                                    : STUB_PROCESSES_LISTED;
  else
    return 0;
  return 1;
}

static void set_key(char *key, char *value, struct stub_fault_list *faults) {
  if (!strncmp(key, "fault.", 6)) {
    stub_parse_fault(faults, key + 6, value);
    return;
  }
  if (set_machine_key(key, value))
    return;
  char *dot = strrchr(key, '.'); /* key.N is device N's value, key alone every device's */
  if (dot && isdigit((unsigned char)dot[1])) {
    *dot = 0;
    set_device_key(&settings.device[atoi(dot + 1) % STUB_MAX_DEVICES], key, value);
    return;
  }
  for (int i = 0; i < STUB_MAX_DEVICES; i++)
    set_device_key(&settings.device[i], key, value);
}

/* ------------------------------------------------------------- the texts */
static char *trim(char *text) {
  while (isspace((unsigned char)*text))
    text++;
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1]))
    *--end = 0;
  return text;
}

static void parse(char *text, const char *separators, struct stub_fault_list *faults) {
  char *rest = NULL;
  for (char *line = strtok_r(text, separators, &rest); line; line = strtok_r(NULL, separators, &rest)) {
    char *key = trim(line), *equals = strchr(key, '=');
    if (*key == '#' || !equals)
      continue;
    *equals = 0;
    set_key(trim(key), trim(equals + 1), faults);
  }
}

static void parse_file(const char *path, size_t size, struct stub_fault_list *faults) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  char *text = malloc(size + 1);
  ssize_t got = read(fd, text, size);
  text[got > 0 ? got : 0] = 0;
  parse(text, "\n", faults);
  free(text);
  close(fd);
}

static int same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Called with the lock held. The control file wins over STUBCUDA_CONFIG. */
static void refresh(void) {
  static struct stat seen;
  static int read_before, was_present;
  const char *path = getenv("STUBCUDA_CONTROL"), *inherited = getenv("STUBCUDA_CONFIG");
  struct stat now;
  int present = path && *path && stat(path, &now) == 0;
  if (read_before && present == was_present && (!present || same_file(&now, &seen)))
    return;
  struct stub_fault_list faults = {0};
  set_defaults();
  if (inherited) {
    char *text = strdup(inherited);
    parse(text, ";\n", &faults);
    free(text);
  }
  if (present) {
    parse_file(path, (size_t)now.st_size, &faults);
    seen = now;
  }
  read_before = 1;
  was_present = present;
  stub_set_faults(&faults);
}

void stub_read_settings(struct stub_settings *out) {
  pthread_mutex_lock(&settings_lock);
  refresh();
  *out = settings;
  pthread_mutex_unlock(&settings_lock);
}

void stub_parse_pci(const char *text, unsigned *domain, unsigned *bus, unsigned *device) {
  *domain = *bus = *device = 0;
  sscanf(text, "%x:%x:%x", domain, bus, device);
}
