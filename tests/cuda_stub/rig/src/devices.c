#include "devices.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char *visible_devices; /* NULL: all */
static pthread_once_t visible_once = PTHREAD_ONCE_INIT;
static __thread int current_device;

/* Like the driver, looks once: what a program sets later has no effect. */
static void read_visible_devices(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  visible_devices = text ? strdup(text) : NULL;
}

/* The place of the device that one entry names, by number or by the beginning of its UUID; -1: none. */
static int find_device(const char *entry, const struct stub_settings *machine) {
  if (!strncasecmp(entry, "GPU-", 4)) {
    for (int i = 0; i < machine->devices; i++)
      if (!strncasecmp(entry, machine->device[i].uuid, strlen(entry)))
        return i;
    return -1;
  }
  char *end;
  long number = strtol(entry, &end, 10);
  return end != entry && !*end && number >= 0 && number < machine->devices ? (int)number : -1;
}

void stub_visible_settings(struct stub_settings *out) {
  stub_read_settings(out);
  pthread_once(&visible_once, read_visible_devices);
  if (!visible_devices)
    return;
  struct stub_settings machine = *out;
  char *text = strdup(visible_devices), *rest = NULL;
  int count = 0, named[STUB_MAX_DEVICES] = {0};
  for (char *entry = strtok_r(text, ", ", &rest); entry; entry = strtok_r(NULL, ", ", &rest)) {
    int place = find_device(entry, &machine);
    if (place < 0) /* the first that does not exist hides the rest */
      break;
    if (named[place]++) { /* a device named twice hides them all */
      count = 0;
      break;
    }
    out->device[count++] = machine.device[place];
  }
  free(text);
  out->devices = count;
}

int stub_place(int ordinal) {
  struct stub_settings settings;
  stub_visible_settings(&settings);
  return settings.device[ordinal].index;
}

int stub_current_device(void) { return current_device; }

int stub_set_device(int ordinal) {
  struct stub_settings settings;
  stub_visible_settings(&settings);
  if (ordinal < 0 || ordinal >= settings.devices)
    return -1;
  current_device = ordinal;
  return 0;
}

void stub_uuid_bytes(int ordinal, char bytes[16]) {
  struct stub_settings settings;
  stub_visible_settings(&settings);
  memset(bytes, 0, 16);
  const char *text = settings.device[ordinal].uuid;
  int digits = 0;
  for (text += strncasecmp(text, "GPU-", 4) ? 0 : 4; *text && digits < 32; text++) {
    char digit[2] = {*text, 0}, *end;
    long value = strtol(digit, &end, 16);
    if (*end)
      continue; /* a hyphen */
    bytes[digits / 2] = (char)(bytes[digits / 2] << 4 | value);
    digits++;
  }
}
