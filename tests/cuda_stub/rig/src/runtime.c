/* Stub libcudart.so.13: the CUDA runtime as torch's CUDA build calls it, over host memory. No kernel runs. What torch
 * asks for and is not here becomes a function that returns cudaErrorNotSupported (../libraries.py makes it). */
#define _GNU_SOURCE
#include "devices.h"
#include "driver.h"
#include "faults.h"
#include "machine.h"
#include "memory.h"
#include "trace.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API cudaError_t CUDARTAPI

static __thread cudaError_t last_error;

static cudaError_t finish(int error) {
  if (error)
    last_error = (cudaError_t)error;
  return (cudaError_t)error;
}
/* A fault's number is the CUDA error to return, e.g. fault.cudaMalloc = 2 (out of memory). */
#define FAULT()                                                                                                        \
  do {                                                                                                                 \
    int fault_ = stub_fault(__func__);                                                                                 \
    if (fault_)                                                                                                        \
      return finish(fault_);                                                                                           \
  } while (0)
#define NEED_DEVICE(ordinal)                                                                                           \
  do {                                                                                                                 \
    if ((ordinal) < 0 || (ordinal) >= visible().devices)                                                               \
      return finish(cudaErrorInvalidDevice);                                                                           \
  } while (0)
#define NEED_CONTEXT()                                                                                                 \
  do {                                                                                                                 \
    if (stub_make_context(stub_place(stub_current_device())))                                                          \
      return finish(cudaErrorMemoryAllocation);                                                                        \
  } while (0)

static struct stub_settings visible(void) {
  struct stub_settings settings;
  stub_visible_settings(&settings);
  return settings;
}

static cudaError_t result_of(int outcome) {
  return finish(outcome == STUB_OK        ? cudaSuccess
                : outcome == STUB_NO_ROOM ? cudaErrorMemoryAllocation
                                          : cudaErrorInvalidValue);
}

/* ------------------------------------------------------------- devices */
API cudaGetDeviceCount(int *count) {
  FAULT();
  *count = visible().devices;
  return *count ? cudaSuccess : finish(cudaErrorNoDevice);
}
API cudaGetDevice(int *ordinal) {
  *ordinal = stub_current_device();
  return cudaSuccess;
}
API cudaSetDevice(int ordinal) {
  FAULT();
  if (stub_set_device(ordinal))
    return finish(cudaErrorInvalidDevice);
  NEED_CONTEXT(); /* since CUDA 12 cudaSetDevice makes the context */
  return cudaSuccess;
}
API cudaGetDeviceProperties(struct cudaDeviceProp *properties, int ordinal) {
  FAULT();
  NEED_DEVICE(ordinal);
  struct stub_settings settings = visible();
  struct stub_device_settings *device = &settings.device[ordinal];
  unsigned domain, bus, slot;
  stub_parse_pci(device->pci, &domain, &bus, &slot);
  memset(properties, 0, sizeof *properties);
  snprintf(properties->name, sizeof properties->name, "%s", device->name);
  stub_uuid_bytes(ordinal, properties->uuid.bytes);
  properties->pciDomainID = (int)domain;
  properties->pciBusID = (int)bus;
  properties->pciDeviceID = (int)slot;
  properties->totalGlobalMem = device->total - device->reserved;
  properties->major = (int)device->cc_major;
  properties->minor = (int)device->cc_minor;
  properties->multiProcessorCount = (int)device->sm_count;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = 101376;
  properties->sharedMemPerMultiprocessor = 102400;
  properties->reservedSharedMemPerBlock = 1024;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->memPitch = 2147483647;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 1536;
  properties->maxBlocksPerMultiProcessor = 16;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->totalConstMem = 65536;
  properties->textureAlignment = 512;
  properties->texturePitchAlignment = 32;
  properties->memoryBusWidth = 192;
  properties->l2CacheSize = 2359296;
  properties->asyncEngineCount = 2;
  properties->canMapHostMemory = properties->concurrentKernels = properties->unifiedAddressing = 1;
  properties->streamPrioritiesSupported = properties->managedMemory = properties->cooperativeLaunch = 1;
  properties->hostRegisterSupported = properties->canUseHostPointerForRegisteredMem = 1;
  return cudaSuccess;
}
API cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr wanted, int ordinal) {
  extern unsigned cuDeviceGetAttribute(int *, int, int); /* the numbers are the driver's */
  FAULT();
  NEED_DEVICE(ordinal);
  return finish((int)cuDeviceGetAttribute(value, (int)wanted, ordinal));
}
API cudaDeviceGetPCIBusId(char *text, int room, int ordinal) {
  NEED_DEVICE(ordinal);
  struct stub_settings settings = visible();
  const char *pci = settings.device[ordinal].pci;
  snprintf(text, (size_t)room, "%s", strlen(pci) > 12 ? pci + strlen(pci) - 12 : pci); /* a domain of four digits */
  return cudaSuccess;
}
API cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = 0;
  return cudaSuccess;
}
API cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return cudaSuccess; }
API cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least)
    *least = 0;
  if (greatest)
    *greatest = -5;
  return cudaSuccess;
}
API cudaDeviceSynchronize(void) {
  FAULT();
  NEED_CONTEXT();
  return cudaSuccess;
}
API cudaDriverGetVersion(int *version) {
  FAULT();
  *version = visible().cuda_version;
  return cudaSuccess;
}
API cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
API cudaProfilerStart(void) { return cudaSuccess; }
API cudaProfilerStop(void) { return cudaSuccess; }

/* -------------------------------------------------------------- memory */
API cudaMalloc(void **address, size_t size) {
  FAULT();
  return result_of(stub_device_alloc(stub_current_device(), address, size));
}
API cudaFree(void *address) {
  FAULT();
  NEED_CONTEXT();
  return result_of(stub_device_free(address));
}
API cudaMallocAsync(void **address, size_t size, cudaStream_t stream) {
  FAULT();
  return result_of(stub_device_alloc(stub_current_device(), address, size));
}
API cudaFreeAsync(void *address, cudaStream_t stream) {
  FAULT();
  return result_of(stub_device_free(address));
}
API cudaMemGetInfo(size_t *available, size_t *total) {
  FAULT();
  NEED_CONTEXT();
  stub_device_room(stub_current_device(), available, total);
  return cudaSuccess;
}
API cudaHostAlloc(void **address, size_t size, unsigned flags) {
  FAULT();
  NEED_CONTEXT();
  return result_of(stub_host_alloc(address, size));
}
API cudaFreeHost(void *address) {
  FAULT();
  return result_of(stub_host_free(address));
}
API cudaHostRegister(void *address, size_t size, unsigned flags) {
  FAULT();
  return result_of(stub_host_register(address, size));
}
API cudaHostUnregister(void *address) {
  FAULT();
  return result_of(stub_host_unregister(address));
}
API cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  FAULT();
  NEED_CONTEXT();
  stub_copy(to, from, size);
  return cudaSuccess;
}
API cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
  FAULT();
  NEED_CONTEXT();
  stub_copy(to, from, size);
  return cudaSuccess;
}
API cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size, cudaStream_t stream) {
  FAULT();
  stub_copy(to, from, size);
  return cudaSuccess;
}
API cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                      enum cudaMemcpyKind kind, cudaStream_t stream) {
  FAULT();
  for (size_t row = 0; row < height; row++)
    stub_copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  return cudaSuccess;
}
API cudaMemset(void *address, int value, size_t size) {
  FAULT();
  stub_fill(address, value, size);
  return cudaSuccess;
}
API cudaMemsetAsync(void *address, int value, size_t size, cudaStream_t stream) {
  FAULT();
  stub_fill(address, value, size);
  return cudaSuccess;
}
API cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, enum cudaMemcpyKind kind) {
  return cudaSuccess; /* only kernels would read it */
}
API cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
  memset(attributes, 0, sizeof *attributes);
  int ordinal = stub_device_find(address, NULL, NULL);
  if (ordinal >= 0) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = ordinal;
    attributes->devicePointer = (void *)address;
  } else if (stub_host_find(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->devicePointer = attributes->hostPointer = (void *)address;
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = (void *)address;
  }
  return cudaSuccess;
}

/* ------------- streams and events: everything is done when the call returns */
struct stream {
  int priority;
};
struct event {
  struct timespec time;
};

API cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  FAULT();
  NEED_CONTEXT();
  struct stream *made = calloc(1, sizeof *made);
  made->priority = priority;
  *stream = (cudaStream_t)made;
  return cudaSuccess;
}
API cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
API cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
API cudaStreamDestroy(cudaStream_t stream) {
  free(stream);
  return cudaSuccess;
}
API cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  int is_default = stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  *priority = is_default ? 0 : ((struct stream *)stream)->priority;
  return cudaSuccess;
}
API cudaStreamQuery(cudaStream_t stream) {
  FAULT();
  return cudaSuccess;
}
API cudaStreamSynchronize(cudaStream_t stream) {
  FAULT();
  return cudaSuccess;
}
API cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return cudaSuccess; }
API cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
API cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                             cudaGraph_t *graph, const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                             size_t *count) {
  if (status)
    *status = cudaStreamCaptureStatusNone;
  if (id)
    *id = 0;
  if (graph)
    *graph = NULL;
  if (dependencies)
    *dependencies = NULL;
  if (edges)
    *edges = NULL;
  if (count)
    *count = 0;
  return cudaSuccess;
}
API cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  static __thread enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  enum cudaStreamCaptureMode before = current;
  current = *mode;
  *mode = before;
  return cudaSuccess;
}
API cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}
API cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  function(data);
  return cudaSuccess;
}
API cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  FAULT();
  NEED_CONTEXT();
  *event = (cudaEvent_t)calloc(1, sizeof(struct event));
  return cudaSuccess;
}
API cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
API cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}
API cudaEventQuery(cudaEvent_t event) {
  FAULT();
  return cudaSuccess;
}
API cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAULT();
  clock_gettime(CLOCK_MONOTONIC, &((struct event *)event)->time);
  return cudaSuccess;
}
API cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}
API cudaEventSynchronize(cudaEvent_t event) {
  FAULT();
  return cudaSuccess;
}
API cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  struct timespec *from = &((struct event *)start)->time, *to = &((struct event *)end)->time;
  *milliseconds = (float)((double)(to->tv_sec - from->tv_sec) * 1e3 + (double)(to->tv_nsec - from->tv_nsec) / 1e6);
  return cudaSuccess;
}

/* -------------------------------------------------------------- errors */
static const struct {
  int code;
  const char *name, *text;
} ERRORS[] = {{0, "cudaSuccess", "no error"},
              {1, "cudaErrorInvalidValue", "invalid argument"},
              {2, "cudaErrorMemoryAllocation", "out of memory"},
              {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
              {98, "cudaErrorInvalidDeviceFunction", "invalid device function (stub: no kernels)"},
              {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
              {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
              {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
              {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
              {710, "cudaErrorAssert", "device-side assert triggered"},
              {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
              {801, "cudaErrorNotSupported", "operation not supported (stub)"}};

API cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
API cudaPeekAtLastError(void) { return last_error; }
const char *CUDARTAPI cudaGetErrorName(cudaError_t error) {
  for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
    if (ERRORS[i].code == (int)error)
      return ERRORS[i].name;
  return "cudaErrorUnknown";
}
const char *CUDARTAPI cudaGetErrorString(cudaError_t error) {
  for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
    if (ERRORS[i].code == (int)error)
      return ERRORS[i].text;
  return "unknown error";
}

/* ------------------------------------------------- kernels: none are run */
static cudaError_t launch(void) {
  stub_trace("{\"op\":\"launch\"}");
  NEED_CONTEXT();
  return visible().kernels_fail ? finish(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}
API cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                     cudaStream_t stream) {
  FAULT();
  return launch();
}
API cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                cudaStream_t stream) {
  FAULT();
  return launch();
}
API cudaLaunchKernelExC(const cudaLaunchConfig_t *configuration, const void *function, void **arguments) {
  FAULT();
  return launch();
}
API __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                       cudaStream_t stream) {
  return launch();
}
API __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}
char __cudaInitModule(void **handle) { return 1; }

/* Code that nvcc compiled stores the <<<...>>> of a launch here, and takes it back, even if the launch then fails. */
static __thread struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} configurations[8];
static __thread int configured;

unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
  if (configured < 8) {
    configurations[configured].grid = grid;
    configurations[configured].block = block;
    configurations[configured].shared = shared;
    configurations[configured].stream = stream;
  }
  configured++;
  return 0;
}
API __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (configured > 0 && --configured < 8) {
    *grid = configurations[configured].grid;
    *block = configurations[configured].block;
    *shared = configurations[configured].shared;
    *(void **)stream = configurations[configured].stream;
  }
  return cudaSuccess;
}

static void *fat_binary[1];
void **CUDARTAPI __cudaRegisterFatBinary(void *binary) { return fat_binary; }
void CUDARTAPI __cudaRegisterFatBinaryEnd(void **handle) {}
void CUDARTAPI __cudaUnregisterFatBinary(void **handle) {}
void CUDARTAPI __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads,
                                      void *thread, void *block, dim3 *block_dim, dim3 *grid_dim, int *warp) {}
void CUDARTAPI __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size,
                                 int constant, int global) {}
API cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 86;
  return cudaSuccess;
}
API cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) { return cudaSuccess; }
API cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
  *blocks = 1;
  return cudaSuccess;
}
API cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                           size_t shared, unsigned flags) {
  *blocks = 1;
  return cudaSuccess;
}
API cudaGetSymbolAddress(void **address, const void *symbol) {
  *address = (void *)symbol;
  return cudaSuccess;
}
API cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                     enum cudaDriverEntryPointQueryResult *outcome) {
  *function = stub_driver_symbol(name);
  if (outcome)
    *outcome = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
