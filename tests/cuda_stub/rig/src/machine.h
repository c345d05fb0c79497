/* The machine's GPUs as all processes share them: who holds how much, in the file that STUBCUDA_STATE names. */
#ifndef STUB_MACHINE_H
#define STUB_MACHINE_H
#include "settings.h"
#include <stdint.h>

#define STUB_MAX_PROCESSES 256

struct stub_usage {
  uint64_t used; /* bytes: baseline, contexts and allocations of all processes */
  int processes; /* with a context on the device */
  struct {
    int pid;
    uint64_t bytes;
  } process[STUB_MAX_PROCESSES];
};

/* `device` is the place in the machine. 0 is success, -1: it does not fit. */
int stub_reserve(int device, uint64_t bytes);
void stub_release(int device, uint64_t bytes);
int stub_make_context(int device); /* success too where this process has one */
void stub_usage(int device, struct stub_usage *usage);
void stub_leave(void); /* forgets all that this process holds */
#endif
