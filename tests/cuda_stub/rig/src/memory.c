#define _GNU_SOURCE
#include "memory.h"
#include "devices.h"
#include "machine.h"
#include "trace.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GRANULE (2ull << 20)      /* cudaMalloc's physical granularity */
#define WINDOW_BYTES (4ull << 40) /* address space set aside for one device */
#define PAGE_BYTES 4096

/* ------------------------------------------------------------- devices */
struct range {
  char *start;
  size_t size, asked;
};
struct window {
  char *base;
  struct range *range; /* ordered by address */
  size_t count, room;
};
static struct window windows[STUB_MAX_DEVICES];
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t round_up(size_t size) { return (size + GRANULE - 1) & ~(GRANULE - 1); }

static int open_window(struct window *window) {
  if (window->base)
    return 0;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char *start = mmap(NULL, WINDOW_BYTES + GRANULE, PROT_NONE, flags, -1, 0);
  if (start == MAP_FAILED)
    return -1;
  window->base = (char *)round_up((uintptr_t)start);
  return 0;
}

/* The number of the first range that starts after `address`. */
static size_t first_after(const struct window *window, const char *address) {
  size_t low = 0, high = window->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (window->range[middle].start <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The lowest address with `size` free bytes behind it, NULL if there is none. */
static char *first_fit(const struct window *window, size_t size) {
  char *candidate = window->base;
  for (size_t i = 0; i < window->count; i++) {
    if ((size_t)(window->range[i].start - candidate) >= size)
      return candidate;
    candidate = window->range[i].start + window->range[i].size;
  }
  return (size_t)(window->base + WINDOW_BYTES - candidate) >= size ? candidate : NULL;
}

static void insert(struct window *window, struct range range) {
  if (window->count == window->room) {
    window->room = window->room ? window->room * 2 : 256;
    window->range = realloc(window->range, window->room * sizeof *window->range);
  }
  size_t at = first_after(window, range.start);
  memmove(window->range + at + 1, window->range + at, (window->count - at) * sizeof *window->range);
  window->range[at] = range;
  window->count++;
}

static char *map_range(int ordinal, size_t size, size_t asked) {
  struct window *window = &windows[ordinal];
  pthread_mutex_lock(&memory_lock);
  char *start = open_window(window) ? NULL : first_fit(window, size);
  if (start && mprotect(start, size, PROT_READ | PROT_WRITE))
    start = NULL;
  if (start)
    insert(window, (struct range){start, size, asked});
  pthread_mutex_unlock(&memory_lock);
  return start;
}

int stub_device_alloc(int ordinal, void **address, size_t asked) {
  *address = NULL;
  if (asked == 0)
    return STUB_OK;
  size_t size = round_up(asked);
  if (size < asked || size > WINDOW_BYTES)
    return STUB_NO_ROOM;
  int place = stub_place(ordinal);
  if (!stub_make_context(place) && !stub_reserve(place, size)) {
    *address = map_range(ordinal, size, asked);
    if (!*address)
      stub_release(place, size);
  }
  stub_trace("{\"op\":\"cudaMalloc\",\"device\":%d,\"size\":%zu,\"oom\":%s}", ordinal, asked,
             *address ? "false" : "true");
  return *address ? STUB_OK : STUB_NO_ROOM;
}

/* The ordinal whose memory `address` is, and the number of its range; -1: none. Called with the lock held. */
static int locate(const char *address, size_t *number) {
  for (int i = 0; i < STUB_MAX_DEVICES; i++) {
    struct window *window = &windows[i];
    if (!window->base || address < window->base || address >= window->base + WINDOW_BYTES)
      continue;
    size_t after = first_after(window, address);
    if (after && address < window->range[after - 1].start + window->range[after - 1].size) {
      *number = after - 1;
      return i;
    }
  }
  return -1;
}

int stub_device_find(const void *address, void **base, size_t *size) {
  size_t number;
  pthread_mutex_lock(&memory_lock);
  int ordinal = locate(address, &number);
  if (ordinal >= 0 && base)
    *base = windows[ordinal].range[number].start;
  if (ordinal >= 0 && size)
    *size = windows[ordinal].range[number].asked;
  pthread_mutex_unlock(&memory_lock);
  return ordinal;
}

int stub_device_free(void *address) {
  if (!address)
    return STUB_OK;
  size_t number;
  pthread_mutex_lock(&memory_lock);
  int ordinal = locate(address, &number);
  struct window *window = &windows[ordinal < 0 ? 0 : ordinal];
  if (ordinal < 0 || window->range[number].start != address) {
    pthread_mutex_unlock(&memory_lock);
    return STUB_UNKNOWN_ADDRESS;
  }
  struct range range = window->range[number];
  memmove(window->range + number, window->range + number + 1, (window->count - number - 1) * sizeof range);
  window->count--;
  mmap(range.start, range.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  pthread_mutex_unlock(&memory_lock);
  stub_release(stub_place(ordinal), range.size);
  stub_trace("{\"op\":\"cudaFree\",\"device\":%d,\"size\":%zu}", ordinal, range.asked);
  return STUB_OK;
}

void stub_device_room(int ordinal, size_t *available, size_t *total) {
  struct stub_settings settings;
  struct stub_usage usage;
  stub_visible_settings(&settings);
  stub_usage(settings.device[ordinal].index, &usage);
  uint64_t capacity = settings.device[ordinal].total - settings.device[ordinal].reserved;
  if (total)
    *total = capacity;
  if (available)
    *available = usage.used < capacity ? capacity - usage.used : 0;
}

/* data = discard: copies to, from and within a device move no bytes (what they leave is undefined), so that a model of
 * any size costs no memory. */
static int discarded(const void *a, const void *b) {
  struct stub_settings settings;
  stub_read_settings(&settings);
  return settings.discard_data && (stub_device_find(a, NULL, NULL) >= 0 || stub_device_find(b, NULL, NULL) >= 0);
}

void stub_copy(void *to, const void *from, size_t size) {
  if (!discarded(to, from))
    memmove(to, from, size);
}

void stub_fill(void *to, int value, size_t size) {
  if (!discarded(to, to))
    memset(to, value, size);
}

/* ---------------------- pinned host memory: ordinary memory that we know */
struct pinned {
  char *start;
  size_t size;
  int ours; /* allocated here, not only registered */
  struct pinned *next;
};
static struct pinned *pinned;

static void pin(void *start, size_t size, int ours) {
  struct pinned *entry = malloc(sizeof *entry);
  pthread_mutex_lock(&memory_lock);
  *entry = (struct pinned){start, size, ours, pinned};
  pinned = entry;
  pthread_mutex_unlock(&memory_lock);
}

static int unpin(void *start, int ours) {
  struct pinned *gone = NULL;
  pthread_mutex_lock(&memory_lock);
  for (struct pinned **link = &pinned; *link; link = &(*link)->next)
    if ((*link)->start == start && (*link)->ours == ours) {
      gone = *link;
      *link = gone->next;
      break;
    }
  pthread_mutex_unlock(&memory_lock);
  if (!gone)
    return STUB_UNKNOWN_ADDRESS;
  free(gone);
  return STUB_OK;
}

int stub_host_alloc(void **address, size_t size) {
  if (posix_memalign(address, PAGE_BYTES, size ? size : 1))
    return STUB_NO_ROOM;
  pin(*address, size, 1);
  return STUB_OK;
}

int stub_host_free(void *address) {
  if (!address)
    return STUB_OK;
  int result = unpin(address, 1);
  if (result == STUB_OK)
    free(address);
  return result;
}

int stub_host_register(void *address, size_t size) {
  pin(address, size, 0);
  return STUB_OK;
}

int stub_host_unregister(void *address) { return unpin(address, 0); }

int stub_host_find(const void *address) {
  int found = 0;
  pthread_mutex_lock(&memory_lock);
  for (struct pinned *entry = pinned; entry && !found; entry = entry->next)
    found = (const char *)address >= entry->start && (const char *)address < entry->start + entry->size;
  pthread_mutex_unlock(&memory_lock);
  return found;
}
