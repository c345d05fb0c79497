#include "trace.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *trace_file;
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t trace_once = PTHREAD_ONCE_INIT;

static void open_trace(void) {
  const char *path = getenv("STUBCUDA_TRACE");
  if (path && *path)
    trace_file = strcmp(path, "-") ? fopen(path, "a") : stderr;
}

void stub_trace(const char *format, ...) {
  pthread_once(&trace_once, open_trace);
  if (!trace_file)
    return;
  pthread_mutex_lock(&trace_lock);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(trace_file, format, arguments);
  va_end(arguments);
  fputc('\n', trace_file);
  fflush(trace_file);
  pthread_mutex_unlock(&trace_lock);
}
