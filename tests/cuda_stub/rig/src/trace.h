/* JSON lines of what the stub was asked for, in the file that STUBCUDA_TRACE names ("-": standard error). */
#ifndef STUB_TRACE_H
#define STUB_TRACE_H
void stub_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
