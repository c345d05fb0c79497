#define _GNU_SOURCE
#include "faults.h"
#include "settings.h"
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define FOREVER_SECONDS 1e9
#define NVML_TIMEOUT 10
#define NVML_UNKNOWN 999

static struct stub_fault_list faults;
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct {
  const char *name;
  int code;
} NVML_ERRORS[] = {{"UNINITIALIZED", 1},
                   {"INVALID_ARGUMENT", 2},
                   {"NOT_SUPPORTED", 3},
                   {"NO_PERMISSION", 4},
                   {"ALREADY_INITIALIZED", 5},
                   {"NOT_FOUND", 6},
                   {"INSUFFICIENT_SIZE", 7},
                   {"INSUFFICIENT_POWER", 8},
                   {"DRIVER_NOT_LOADED", 9},
                   {"TIMEOUT", NVML_TIMEOUT},
                   {"IRQ_ISSUE", 11},
                   {"LIBRARY_NOT_FOUND", 12},
                   {"FUNCTION_NOT_FOUND", 13},
                   {"CORRUPTED_INFOROM", 14},
                   {"GPU_IS_LOST", 15},
                   {"RESET_REQUIRED", 16},
                   {"OPERATING_SYSTEM", 17},
                   {"LIB_RM_VERSION_MISMATCH", 18},
                   {"IN_USE", 19},
                   {"MEMORY", 20},
                   {"NO_DATA", 21},
                   {"INSUFFICIENT_RESOURCES", 23},
                   {"NOT_READY", 27},
                   {"GPU_NOT_FOUND", 28},
                   {"UNKNOWN", NVML_UNKNOWN}};

static int error_code(const char *name) {
  for (size_t i = 0; i < sizeof NVML_ERRORS / sizeof *NVML_ERRORS; i++)
    if (!strcasecmp(name, NVML_ERRORS[i].name))
      return NVML_ERRORS[i].code;
  return NVML_UNKNOWN;
}

void stub_parse_fault(struct stub_fault_list *list, const char *function, char *value) {
  struct stub_fault fault = {.times = -1};
  snprintf(fault.function, sizeof fault.function, "%s", function);
  for (char *at = value; (at = strchr(at, '@'));) {
    *at++ = 0;
    sscanf(at, "after=%d", &fault.after);
    sscanf(at, "times=%d", &fault.times);
  }
  char *end = value + strlen(value);
  while (end > value && isspace((unsigned char)end[-1]))
    *--end = 0;
  if (!*value || !strcmp(value, "none") || !strcmp(value, "0") || list->count == STUB_MAX_FAULTS)
    return;
  if (!strncmp(value, "hang", 4)) {
    fault.delay_seconds = value[4] == ':' ? atof(value + 5) : FOREVER_SECONDS;
    fault.code = NVML_TIMEOUT;
  } else if (!strncmp(value, "slow:", 5))
    fault.delay_seconds = atof(value + 5);
  else
    fault.code = isdigit((unsigned char)*value) ? atoi(value) : error_code(value);
  list->fault[list->count++] = fault;
}

static int same_fault(const struct stub_fault *a, const struct stub_fault *b) {
  return !strcmp(a->function, b->function) && a->code == b->code && a->after == b->after && a->times == b->times;
}

void stub_set_faults(const struct stub_fault_list *list) {
  pthread_mutex_lock(&faults_lock);
  struct stub_fault_list old = faults;
  faults = *list;
  for (int i = 0; i < faults.count; i++)
    for (int j = 0; j < old.count; j++)
      if (same_fault(&faults.fault[i], &old.fault[j]))
        faults.fault[i].seen = old.fault[j].seen;
  pthread_mutex_unlock(&faults_lock);
}

/* "nvmlDeviceGetMemoryInfo" strikes its later versions (_v2) too; "nvml*" and "cuda*" strike all of a library. */
static int matches(const char *pattern, const char *function) {
  size_t length = strlen(pattern);
  if (length && pattern[length - 1] == '*')
    return !strncmp(pattern, function, length - 1);
  if (!strcmp(pattern, "nvmlInit")) /* nvidia-ml-py calls nvmlInitWithFlags */
    return !strncmp(function, "nvmlInit", 8);
  if (strncmp(pattern, function, length))
    return 0;
  const char *rest = function + length;
  return !*rest || (rest[0] == '_' && rest[1] == 'v' && isdigit((unsigned char)rest[2]));
}

static struct stub_fault strike(const char *function) {
  struct stub_fault hit = {0};
  pthread_mutex_lock(&faults_lock);
  for (int i = 0; i < faults.count; i++) {
    struct stub_fault *fault = &faults.fault[i];
    if (!matches(fault->function, function))
      continue;
    int call = fault->seen++;
    if (call < fault->after || (fault->times >= 0 && call >= fault->after + fault->times))
      continue;
    hit = *fault;
    break;
  }
  pthread_mutex_unlock(&faults_lock);
  return hit;
}

int stub_fault(const char *function) {
  struct stub_settings current;
  stub_read_settings(&current); /* a changed control file brings its faults with it */
  struct stub_fault hit = strike(function);
  if (hit.delay_seconds > 0) {
    time_t whole = (time_t)hit.delay_seconds;
    struct timespec left = {.tv_sec = whole, .tv_nsec = (long)((hit.delay_seconds - (double)whole) * 1e9)};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
  }
  return hit.code;
}
