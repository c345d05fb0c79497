/* This process's device and pinned memory. Device memory is host memory at addresses that are set aside for it. */
#ifndef STUB_MEMORY_H
#define STUB_MEMORY_H
#include <stddef.h>

enum { STUB_OK = 0, STUB_NO_ROOM = 1, STUB_UNKNOWN_ADDRESS = 2 };

int stub_device_alloc(int ordinal, void **address, size_t size);
int stub_device_free(void *address);
int stub_device_find(const void *address, void **base, size_t *size); /* the ordinal, -1: not device memory */
void stub_device_room(int ordinal, size_t *available, size_t *total);
void stub_copy(void *to, const void *from, size_t size);
void stub_fill(void *to, int value, size_t size);

int stub_host_alloc(void **address, size_t size);
int stub_host_free(void *address);
int stub_host_register(void *address, size_t size);
int stub_host_unregister(void *address);
int stub_host_find(const void *address); /* 1: it is pinned */
#endif
