/* Faults that a test sets on single functions: an error code, a delay, or no answer at all. */
#ifndef STUB_FAULTS_H
#define STUB_FAULTS_H

#define STUB_MAX_FAULTS 64

struct stub_fault {
  char function[64];
  int code;               /* what the function returns: an NVML or a CUDA error number; 0 lets it go on */
  double delay_seconds;   /* before that */
  int after, times, seen; /* strikes calls number after .. after + times - 1; times < 0: for good */
};
struct stub_fault_list {
  int count;
  struct stub_fault fault[STUB_MAX_FAULTS];
};

/* Adds `value`, which is ERROR_NAME | number | hang[:seconds] | slow:seconds, then @after=N and @times=N if wanted. */
void stub_parse_fault(struct stub_fault_list *list, const char *function, char *value);

/* Makes `list` the faults in force; those that were in force before keep their counters. */
void stub_set_faults(const struct stub_fault_list *list);

/* The error that `function` must return now, 0 if none. Sleeps where the fault says so. */
int stub_fault(const char *function);
#endif
