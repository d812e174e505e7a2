// SPDX-License-Identifier: BSD-3-Clause
// libcuda and NVRTC in one, for examples/nbody on machines without a GPU: two devices of Hopper, whose "code" is the
// kernel's text. The bodies stay where they are. Each call is a line in the file $FAKE_CUDA_CALLS.
//   gcc -std=gnu11 -shared -fPIC -o libcuda.so.1 fake_cuda_for_nbody.c; ln -s libcuda.so.1 libnvrtc.so
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long memory;
static const char *program_text;

static int note(const char *name, long value) {
    FILE *calls = fopen(getenv("FAKE_CUDA_CALLS"), "a");
    if (!calls) abort();
    fprintf(calls, "%s %ld\n", name, value);
    return fclose(calls);
}

int cuInit(unsigned flags) { return note("cuInit", flags); }
int cuDeviceGetCount(int *count) { return *count = 2, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, note("cuDeviceGet", number); }
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "Fake %d", device), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 2;  // compute capability 9.0, 2 multiprocessors
    return note("cuDeviceGetAttribute", attribute);
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(device + 1L), 0; }
int cuCtxSetCurrent(void *context) { return note("cuCtxSetCurrent", (long)context); }
int cuCtxSynchronize(void) { return note("cuCtxSynchronize", 0); }
int cuGetErrorString(int status, const char **text) { return *text = status == 2 ? "out of memory" : "unknown", 0; }
int cuModuleLoadData(void **module, const char *code) {
    *module = NULL;
    return note("cuModuleLoadData", (long)strlen(code)) || !strstr(code, "step(const Body*");
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return *function = module, strcmp(name, "step") ? 500 : 0;
}
int cuMemAlloc_v2(memory *place, size_t size) {
    const char *limit = getenv("FAKE_CUDA_BYTES");
    note("cuMemAlloc", (long)size);
    if (limit && size > strtoul(limit, NULL, 10)) return 2;
    return (*place = (memory)malloc(size)) ? 0 : 2;
}
int cuMemcpyHtoD_v2(memory to, const void *from, size_t size) {
    return memcpy((void *)to, from, size), note("cuMemcpyHtoD", (long)size);
}
int cuMemsetD8_v2(memory to, unsigned char value, size_t size) { return memset((void *)to, value, size), 0; }
int cuMemcpyPeer(memory to, void *its, memory from, void *mine, size_t size) {
    return memcpy((void *)to, (void *)from, size), note("cuMemcpyPeer", (long)size);
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    int first = *(int *)arguments[3], count = *(int *)arguments[4], bodies = *(int *)arguments[5];
    if (y != 1 || z != 1 || by != 1 || bz != 1 || shared || stream || extra) return 1;
    memcpy(*(void **)arguments[1], *(void **)arguments[0], (size_t)bodies * 16);
    return note("blocks", x) || note("threads", bx) || note("first", first) || note("count", count);
}

int nvrtcCreateProgram(void **program, const char *text, const char *name, int headers, void *from, void *names) {
    return *program = NULL, program_text = strdup(text), 0;
}
int nvrtcCompileProgram(void *program, int count, const char **words) {
    for (int i = 0; i < count; i++) note(words[i], i);
    return 0;
}
int nvrtcGetCUBINSize(void *program, size_t *size) { return *size = strlen(program_text) + 1, 0; }
int nvrtcGetCUBIN(void *program, char *code) { return strcpy(code, program_text), 0; }
