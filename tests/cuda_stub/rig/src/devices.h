/* CUDA's numbering of the machine's devices, as CUDA_VISIBLE_DEVICES makes it. An ordinal is CUDA's number. */
#ifndef STUB_DEVICES_H
#define STUB_DEVICES_H
#include "settings.h"

/* The settings with only the visible devices, in their order; device[ordinal].index is the place in the machine. */
void stub_visible_settings(struct stub_settings *out);
int stub_place(int ordinal); /* in the machine */
int stub_current_device(void);
int stub_set_device(int ordinal); /* -1: there is none */
void stub_uuid_bytes(int ordinal, char bytes[16]);
#endif
