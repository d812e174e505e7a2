// SPDX-License-Identifier: BSD-3-Clause
// A libcuda that has no GPU behind it, for machines without one: enough calls for vector_add.c, done by the processor.
// It obeys CUDA_VISIBLE_DEVICES with one device, number 0. Also built as libnvidia-ml, of which only the name is needed.
//   gcc -std=gnu11 -shared -fPIC -o libcuda.so.580.95.05 fake_libcuda.c
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = 100, INVALID_DEVICE = 101 };

int cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)flags;
    return visible && strcmp(visible, "0") ? NO_DEVICE : 0;
}

int cuGetErrorName(int status, const char **text) {
    *text = status == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR";
    return 0;
}

int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, number ? INVALID_DEVICE : 0; }
int cuDeviceGetName(char *name, int size, int device) { return (void)device, strncpy(name, "Fake", (size_t)size), 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return (void)device, *context = NULL, 0; }
int cuCtxSetCurrent(void *context) { return (void)context, 0; }
int cuCtxSynchronize(void) { return 0; }
int cuModuleLoadData(void **module, const char *text) { return *module = NULL, strstr(text, ".entry add") ? 0 : 218; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return (void)module, *function = NULL, strcmp(name, "add") ? 500 : 0;
}
int cuMemAlloc_v2(unsigned long long *memory, size_t size) { return (*memory = (size_t)malloc(size)) ? 0 : 2; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { return memcpy((void *)to, from, size), 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { return memcpy(to, (void *)from, size), 0; }

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    (void)function, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
    float *a = *(float **)arguments[0], *b = *(float **)arguments[1], *c = *(float **)arguments[2];
    for (unsigned i = 0; i < *(unsigned *)arguments[3]; i++) c[i] = a[i] + b[i];
    return 0;
}
