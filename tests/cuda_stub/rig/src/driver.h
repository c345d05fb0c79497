/* What the runtime library takes from the driver library. */
#ifndef STUB_DRIVER_H
#define STUB_DRIVER_H
void *stub_driver_symbol(const char *name); /* never NULL: unknown names get a "not supported" function */
#endif
