// SPDX-License-Identifier: BSD-3-Clause
// A libnvidia-ml that has no GPU behind it, and can be as broken as real ones are. Variables say what it is:
//   FAKE_NVML_GPUS     names of GPUs with a comma between; "lost" is one that has fallen off the bus
//   FAKE_NVML_DRIVER   580.95.05; FAKE_NVML_CUDA 13000
//   FAKE_NVML_INIT     what nvmlInit_v2 returns; "hang" and "crash" are what it does instead
//   FAKE_NVML_FABRIC   state of the fabric; FAKE_NVML_MIG 1: every GPU has MIG on and two parts
//   gcc -std=gnu11 -shared -fPIC -o libnvidia-ml.so.580.95.05 fake_nvml.c
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST = 15 };
struct memory { unsigned long long total, free, used; };
struct fabric { unsigned char cluster[16]; unsigned status, clique; unsigned char state; };

static const char *say(const char *name, const char *usual) {
    const char *value = getenv(name);
    return value ? value : usual;
}

static unsigned list(unsigned wanted, char *name) {
    char words[1024];
    unsigned count = 0;
    snprintf(words, sizeof words, "%s", say("FAKE_NVML_GPUS", "NVIDIA H200"));
    for (char *word = strtok(words, ","); word; word = strtok(NULL, ","), count++)
        if (count == wanted) strcpy(name, word);
    return count;
}

static unsigned number_of(void *gpu) { return (unsigned)((size_t)gpu - 1) % 100; }

int nvmlInit_v2(void) {
    const char *way = say("FAKE_NVML_INIT", "0");
    while (!strcmp(way, "hang")) pause();
    if (!strcmp(way, "crash")) signal(SIGABRT, SIG_DFL), abort();
    return atoi(way);
}
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    return snprintf(text, size, "%s", say("FAKE_NVML_DRIVER", "580.95.05")), 0;
}
int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    return snprintf(text, size, "13.%s", say("FAKE_NVML_DRIVER", "580.95.05")), 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = atoi(say("FAKE_NVML_CUDA", "13000")), 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = list(~0U, NULL), 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **gpu) {
    char name[1024] = "";
    list(number, name);
    *gpu = (void *)(size_t)(number + 1);
    return strcmp(name, "lost") ? 0 : LOST;
}
int nvmlDeviceGetName(void *gpu, char *text, unsigned size) {
    char name[1024] = "";
    list(number_of(gpu), name);
    return snprintf(text, size, "%s", name), 0;
}
int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size) {
    const char *kind = (size_t)gpu > 100 ? "MIG" : "GPU";
    snprintf(text, size, "%s-%u%zu111111-2222-3333-4444-555555555555", kind, number_of(gpu), ((size_t)gpu - 1) / 100);
    return 0;
}
int nvmlDeviceGetMinorNumber(void *gpu, unsigned *minor) { return *minor = number_of(gpu), 0; }
int nvmlDeviceGetBrand(void *gpu, unsigned *brand) { return (void)gpu, *brand = 14, 0; }
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
    return (void)gpu, *major = 9, *minor = 0, 0;
}
int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *memory) {
    memory->used = (number_of(gpu) + 1) * 1000000000ULL;
    return memory->total = 150754820096ULL, 0;
}
int nvmlDeviceGetUtilizationRates(void *gpu, unsigned rates[2]) {
    const char *way = say("FAKE_NVML_LOAD", "50");
    while (!strcmp(way, "hang")) pause();
    return rates[0] = (unsigned)atoi(way) + number_of(gpu), rates[1] = 0, *way == '-' ? 3 : 0;
}
int nvmlDeviceGetPersistenceMode(void *gpu, unsigned *mode) { return (void)gpu, *mode = 1, 0; }
int nvmlDeviceGetMigMode(void *gpu, unsigned *current, unsigned *pending) {
    return (void)gpu, *current = *pending = (unsigned)atoi(say("FAKE_NVML_MIG", "0")), 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *gpu, unsigned *count) { return (void)gpu, *count = 7, 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned number, void **part) {
    *part = (void *)((size_t)gpu + 100 * (number + 1));
    return number < 2 ? 0 : NOT_FOUND;
}
int nvmlDeviceGetGpuFabricInfo(void *gpu, struct fabric *fabric) {
    const char *state = say("FAKE_NVML_FABRIC", "");
    return (void)gpu, fabric->state = (unsigned char)atoi(state), *state ? 0 : NOT_SUPPORTED;
}
