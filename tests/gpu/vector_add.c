// SPDX-License-Identifier: BSD-3-Clause
// Adds two vectors on the first GPU through the driver's own interface. Nothing of CUDA is needed to build it: libcuda is
// opened at run time, and the kernel is PTX text that the driver compiles. Prints one JSON object; the status is 0 when
// the sum is right, 2 when there is no libcuda, 3 when a call of it fails, 4 when the sum is wrong.
//   vector_add [VERSION TARGET]          the kernel as PTX of that version for that target: 6.3 and sm_70
//   vector_add --print VERSION TARGET    print that PTX, for ptxas
//   vector_add --load FILE               the kernel as ptxas made it
//   gcc -std=gnu11 -O2 -o vector_add vector_add.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*call)();

static const char *body =
    ".address_size 64\n"
    ".visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn) {\n"
    ".reg .pred %p; .reg .f32 %x, %y, %z; .reg .b32 %i, %b, %t, %d, %n; .reg .b64 %a0, %b0, %c0, %o;\n"
    "ld.param.u64 %a0, [pa]; ld.param.u64 %b0, [pb]; ld.param.u64 %c0, [pc]; ld.param.u32 %n, [pn];\n"
    "mov.u32 %b, %ctaid.x; mov.u32 %d, %ntid.x; mov.u32 %t, %tid.x; mad.lo.s32 %i, %b, %d, %t;\n"
    "setp.ge.u32 %p, %i, %n; @%p bra done;\n"
    "mul.wide.u32 %o, %i, 4; add.s64 %a0, %a0, %o; add.s64 %b0, %b0, %o; add.s64 %c0, %c0, %o;\n"
    "cvta.to.global.u64 %a0, %a0; cvta.to.global.u64 %b0, %b0; cvta.to.global.u64 %c0, %c0;\n"
    "ld.global.f32 %x, [%a0]; ld.global.f32 %y, [%b0]; add.f32 %z, %x, %y; st.global.f32 [%c0], %z;\n"
    "done: ret;\n}\n";

static char module_data[1 << 20];

static void make_module(int count, char **words) {
    FILE *file = count == 3 && !strcmp(words[1], "--load") ? fopen(words[2], "rb") : NULL;
    const char *version = count >= 3 ? words[count - 2] : "6.3", *target = count >= 3 ? words[count - 1] : "sm_70";
    if (file && fread(module_data, 1, sizeof module_data - 1, file) > 0) return (void)fclose(file);
    snprintf(module_data, sizeof module_data, ".version %s\n.target %s\n%s", version, target, body);
}

static void *library;

static call find(const char *name) {
    call found = (call)dlsym(library, name);
    if (!found) {
        printf("{\"error\": \"libcuda has no %s\"}\n", name);
        exit(3);
    }
    return found;
}

static void check(const char *what, int status) {
    if (status == 0) return;
    const char *text = "?";
    call get_name = (call)dlsym(library, "cuGetErrorName");
    if (get_name) get_name(status, &text);
    printf("{\"error\": \"%s: %s\", \"code\": %d}\n", what, text ? text : "?", status);
    exit(3);
}

// Where the loader took libcuda from: the last word of its lines in /proc/self/maps.
static void find_mapped(char *path, size_t size) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    path[0] = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        char *start = strchr(line, '/');
        if (!start || !strstr(start, "libcuda.so")) continue;
        start[strcspn(start, "\n")] = 0;
        snprintf(path, size, "%s", start);
        break;
    }
    if (maps) fclose(maps);
}

int main(int words_count, char **words) {
    enum { COUNT = 1 << 20 };
    make_module(words_count, words);
    if (words_count == 4) return fputs(module_data, stdout) < 0;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        const char *reason = dlerror();
        printf("{\"error\": \"no libcuda: %.200s\"}\n", reason ? reason : "?");
        return 2;
    }
    check("cuInit", find("cuInit")(0));
    int version = 0, count = 0, device = 0;
    char name[256] = "", mapped[4096];
    check("cuDriverGetVersion", find("cuDriverGetVersion")(&version));
    check("cuDeviceGetCount", find("cuDeviceGetCount")(&count));
    check("cuDeviceGet", find("cuDeviceGet")(&device, 0));
    check("cuDeviceGetName", find("cuDeviceGetName")(name, (int)sizeof name, device));
    void *context, *module, *function;
    check("cuDevicePrimaryCtxRetain", find("cuDevicePrimaryCtxRetain")(&context, device));
    check("cuCtxSetCurrent", find("cuCtxSetCurrent")(context));
    check("cuModuleLoadData", find("cuModuleLoadData")(&module, module_data));
    check("cuModuleGetFunction", find("cuModuleGetFunction")(&function, module, "add"));

    float *host = malloc(3 * COUNT * sizeof *host);
    unsigned long long memory[3];
    for (int i = 0; i < COUNT; i++) host[i] = (float)i, host[COUNT + i] = 2.0f * (float)i;
    for (int i = 0; i < 3; i++) check("cuMemAlloc", find("cuMemAlloc_v2")(&memory[i], COUNT * sizeof *host));
    for (int i = 0; i < 2; i++)
        check("cuMemcpyHtoD", find("cuMemcpyHtoD_v2")(memory[i], host + i * COUNT, COUNT * sizeof *host));
    unsigned length = COUNT;
    void *arguments[] = {&memory[0], &memory[1], &memory[2], &length};
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        (void *)find("cuLaunchKernel");
    check("cuLaunchKernel", launch(function, COUNT / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
    check("cuCtxSynchronize", find("cuCtxSynchronize")());
    check("cuMemcpyDtoH", find("cuMemcpyDtoH_v2")(host + 2 * COUNT, memory[2], COUNT * sizeof *host));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += host[2 * COUNT + i] != 3.0f * (float)i;
    find_mapped(mapped, sizeof mapped);
    printf("{\"device\": \"%s\", \"devices\": %d, \"cuda\": \"%d.%d\", \"libcuda\": \"%s\", \"wrong\": %d}\n", name, count,
           version / 1000, version % 1000 / 10, mapped, wrong);
    return wrong ? 4 : 0;
}
