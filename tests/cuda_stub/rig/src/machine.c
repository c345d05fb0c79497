#define _GNU_SOURCE
#include "machine.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x53545543u
#define LAYOUT_VERSION 3u

struct holder {
  int32_t pid;                          /* 0: a free place */
  uint32_t contexts;                    /* bit d: has a context on device d */
  uint64_t start_time;                  /* field 22 of /proc/PID/stat: tells a reused pid apart */
  uint64_t allocated[STUB_MAX_DEVICES]; /* bytes */
  uint64_t context[STUB_MAX_DEVICES];   /* bytes, fixed when the context was made */
};
struct state {
  uint32_t magic, version;
  struct holder holder[STUB_MAX_PROCESSES];
};

static struct state *state;
static int state_fd = -1, state_fd_pid;
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------ the file */
static const char *state_path(void) {
  static char fallback[64];
  const char *path = getenv("STUBCUDA_STATE");
  if (path && *path)
    return path;
  snprintf(fallback, sizeof fallback, "/tmp/stubcuda.%d.state", (int)getuid());
  return fallback;
}

static int open_state(void) {
  state_fd = open(state_path(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  state_fd_pid = getpid();
  struct stat file;
  if (state_fd < 0 || flock(state_fd, LOCK_EX) || fstat(state_fd, &file) ||
      ((size_t)file.st_size < sizeof *state && ftruncate(state_fd, sizeof *state)))
    return -1;
  void *view = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
  if (view == MAP_FAILED)
    return -1;
  state = view;
  if (state->magic != MAGIC || state->version != LAYOUT_VERSION) {
    memset(state, 0, sizeof *state);
    state->magic = MAGIC;
    state->version = LAYOUT_VERSION;
  }
  return 0;
}

/* After a fork the lock needs an open file of the child's own: flock belongs to the open file. */
static void reopen_after_fork(void) {
  if (state_fd_pid == getpid())
    return;
  int fd = open(state_path(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return;
  close(state_fd);
  state_fd = fd;
  state_fd_pid = getpid();
}

static void unlock(void) {
  flock(state_fd, LOCK_UN);
  pthread_mutex_unlock(&state_lock);
}

/* 0: both locks, threads' and processes', are held. */
static int lock(void) {
  pthread_mutex_lock(&state_lock);
  if (!state) {
    if (!open_state())
      return 0;
    fprintf(stderr, "stubcuda: cannot use the state file %s: %s\n", state_path(), strerror(errno));
    if (state_fd >= 0)
      close(state_fd);
    pthread_mutex_unlock(&state_lock);
    return -1;
  }
  reopen_after_fork();
  while (flock(state_fd, LOCK_EX) && errno == EINTR) {
  }
  return 0;
}

/* ------------------------------------------------------- the processes */
/* 0 for a process that is gone, or a zombie: that holds no GPU memory either. */
static uint64_t start_time_of(int pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  char *field = strrchr(text, ')'); /* the name may hold anything; field 3, the state, follows it */
  if (!field || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
    return 0;
  field += 2;
  for (int i = 3; i < 22 && field; i++) {
    field = strchr(field, ' ');
    if (field)
      field++;
  }
  return field ? strtoull(field, NULL, 10) : 0;
}

static void forget_the_dead(void) {
  for (int i = 0; i < STUB_MAX_PROCESSES; i++) {
    struct holder *holder = &state->holder[i];
    if (holder->pid && start_time_of(holder->pid) != holder->start_time)
      memset(holder, 0, sizeof *holder);
  }
}

static struct holder *find_self(int create) {
  static int my_pid;
  static uint64_t my_start_time;
  if (my_pid != getpid()) {
    my_pid = getpid();
    my_start_time = start_time_of(my_pid);
  }
  struct holder *vacant = NULL;
  for (int i = 0; i < STUB_MAX_PROCESSES; i++) {
    struct holder *holder = &state->holder[i];
    if (holder->pid == my_pid && holder->start_time == my_start_time)
      return holder;
    if (!holder->pid && !vacant)
      vacant = holder;
  }
  if (!create || !vacant)
    return NULL;
  memset(vacant, 0, sizeof *vacant);
  vacant->pid = my_pid;
  vacant->start_time = my_start_time;
  return vacant;
}

/* ---------------------------------------------------------- the memory */
static uint64_t used_on(int device, const struct stub_settings *settings) {
  uint64_t used = settings->device[device].baseline;
  for (int i = 0; i < STUB_MAX_PROCESSES; i++)
    if (state->holder[i].pid)
      used += state->holder[i].allocated[device] + state->holder[i].context[device];
  return used;
}

/* Called with the locks held. */
static int fits(int device, uint64_t bytes, const struct stub_settings *settings) {
  uint64_t capacity = settings->device[device].total - settings->device[device].reserved;
  if (used_on(device, settings) + bytes > capacity)
    forget_the_dead();
  return used_on(device, settings) + bytes <= capacity;
}

int stub_reserve(int device, uint64_t bytes) {
  struct stub_settings settings;
  stub_read_settings(&settings);
  if (lock())
    return -1;
  struct holder *self = find_self(1);
  int done = self && fits(device, bytes, &settings);
  if (done)
    self->allocated[device] += bytes;
  unlock();
  return done ? 0 : -1;
}

void stub_release(int device, uint64_t bytes) {
  if (lock())
    return;
  struct holder *self = find_self(0);
  if (self)
    self->allocated[device] -= bytes < self->allocated[device] ? bytes : self->allocated[device];
  unlock();
}

int stub_make_context(int device) {
  static __thread int made_by[STUB_MAX_DEVICES]; /* pid, so that a forked child makes its own */
  if (made_by[device] == getpid())
    return 0;
  struct stub_settings settings;
  stub_read_settings(&settings);
  uint64_t bytes = settings.device[device].context;
  if (lock())
    return -1;
  struct holder *self = find_self(1);
  int had = self && (self->contexts >> device & 1);
  int done = had || (self && fits(device, bytes, &settings));
  if (done && !had) {
    self->context[device] = bytes;
    self->contexts |= 1u << device;
  }
  unlock();
  if (done)
    made_by[device] = getpid();
  return done ? 0 : -1;
}

void stub_usage(int device, struct stub_usage *usage) {
  struct stub_settings settings;
  stub_read_settings(&settings);
  memset(usage, 0, sizeof *usage);
  if (lock())
    return;
  forget_the_dead();
  usage->used = used_on(device, &settings);
  for (int i = 0; i < STUB_MAX_PROCESSES; i++) {
    struct holder *holder = &state->holder[i];
    if (!holder->pid || !(holder->contexts >> device & 1))
      continue;
    usage->process[usage->processes].pid = holder->pid;
    usage->process[usage->processes++].bytes = holder->allocated[device] + holder->context[device];
  }
  unlock();
}

void stub_leave(void) {
  if (!state || lock())
    return;
  struct holder *self = find_self(0);
  if (self)
    memset(self, 0, sizeof *self);
  unlock();
}
