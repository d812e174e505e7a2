/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The probe: a program of a few kilobytes that every rank runs in the container, to say what MPI of the image tells it.
 *
 * It must run in any image, so it is two programs in one file. The kernel starts it without a dynamic loader: that first
 * stage makes system calls only, looks for a loader in the image (glibc or musl), and starts itself by way of it. The
 * second stage opens the image's MPI library and calls it. No system header is included and no symbol has a version, so that one
 * file serves every glibc since 2.5 and musl.
 *
 * Handles of MPI differ: in Open MPI they are addresses of variables, in the MPICH ABI (MPICH, Intel MPI, MVAPICH, Cray
 * MPICH) numbers. Both are passed in one register, so one type serves both.
 *
 *   probe version|world|pi|allreduce|cma [--library FILE] [--task N] [--intervals N] [--bytes N] [--rounds N]
 *
 * It prints JSON, one object per line. scripts/build-probe makes the programs from this file.
 */

typedef unsigned long ulong;
typedef void *handle;

#define MARK "\n@run" /* the argument that tells the second stage from the first: nobody types it */
#define CHUNKS 1024
#define LINE 3072
#define PR_SET_PTRACER 0x59616d61
#define KEPT __attribute__((used))

#ifndef MADE_OF
#define MADE_OF "unknown"
#endif

/* ---- what differs between machines ---- */

#include "no_libc.h"

#if defined(__x86_64__)
#define MACHINE "x86_64"
#define GLIBC_LOADER "/lib64/ld-linux-x86-64.so.2"
#define MUSL_LOADER "/lib/ld-musl-x86_64.so.1"
enum { CALL_write = 1, CALL_exit = 231, CALL_execve = 59, CALL_faccessat = 269, CALL_clock_gettime = 228,
       CALL_process_vm_readv = 310, CALL_readlinkat = 267 };

__asm__(".globl _start\n.hidden _start\n_start:\n"
        "  xor %ebp, %ebp\n  mov %rsp, %rdi\n  mov %rdx, %rsi\n  and $-16, %rsp\n  call begin\n  hlt\n");
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#define GLIBC_LOADER "/lib/ld-linux-aarch64.so.1"
#define MUSL_LOADER "/lib/ld-musl-aarch64.so.1"
enum { CALL_write = 64, CALL_exit = 94, CALL_execve = 221, CALL_faccessat = 48, CALL_clock_gettime = 113,
       CALL_process_vm_readv = 270, CALL_readlinkat = 78 };

__asm__(".globl _start\n.hidden _start\n_start:\n"
        "  mov x29, #0\n  mov x30, #0\n  mov x1, x0\n  mov x0, sp\n  and sp, x0, #-16\n  bl begin\n  brk #0\n");

#endif

#define call4(number, a, b, c, d) call6(number, a, b, c, d, 0, 0)

/* ---- what the second stage takes from the image's libc ---- */

extern int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                             void (*)(void), void *);
/* In glibc since 2.34 and in musl; before, libdl has them, which libc can open. */
#define WEAK __attribute__((weak))
extern WEAK void *dlopen(const char *, int);
extern WEAK void *dlsym(void *, const char *);
extern WEAK char *dlerror(void);
extern WEAK void *__libc_dlopen_mode(const char *, int);
extern WEAK void *__libc_dlsym(void *, const char *);
extern int snprintf(char *, ulong, const char *, ...);
extern void *calloc(ulong, ulong);
extern void free(void *);
extern char *getenv(const char *);
extern int gethostname(char *, ulong);
extern int getpid(void);
extern int prctl(int, ulong, ulong, ulong, ulong);
extern char *strerror(int);
extern void exit(int) __attribute__((noreturn));

static const char origin[] KEPT = "kedge-probe made of " MADE_OF;

/* ---- first stage: no libc, no relocation ---- */

static void say(const char *text)
{
    call4(CALL_write, 1, (long)text, (long)length(text), 0);
}

static int exists(const char *path)
{
    return call4(CALL_faccessat, -100, (long)path, 1, 0) == 0; /* AT_FDCWD, X_OK */
}

/* Starts this very file again by way of a loader of the image; returns only where there is none. */
static void start_again(long count, char **words, char **variables)
{
    char *again[64];
    long used = 3;
    if (count < 1 || count > 56)
        return;
    again[1] = words[0];
    again[2] = (char *)MARK;
    for (long each = 1; each < count; each++)
        again[used++] = words[each];
    again[used] = 0;
    const char *glibc = GLIBC_LOADER, *musl = MUSL_LOADER;
    for (int each = 0; each < 2; each++) {
        const char *loader = each ? musl : glibc;
        if (!exists(loader))
            continue;
        again[0] = (char *)loader;
        call4(CALL_execve, (long)loader, (long)again, (long)variables, 0);
    }
}

static int run(int, char **, char **);

__attribute__((used, visibility("hidden"))) void begin(long *stack, void (*finish)(void))
{
    long count = stack[0];
    char **words = (char **)(stack + 1);
    if (count > 1 && is_same(words[1], MARK)) {
        __libc_start_main(run, (int)count, words, 0, 0, finish, stack);
        call4(CALL_exit, 1, 0, 0, 0);
    }
    start_again(count, words, words + count + 1);
    say("{\"kedge\":\"failure\",\"reason\":\"the image has no dynamic loader for " MACHINE " (neither " GLIBC_LOADER
        " nor " MUSL_LOADER "), so kedge cannot ask its MPI\"}\n");
    call4(CALL_exit, 3, 0, 0, 0);
}

/* ---- second stage ---- */

static char host[256];
static long task = -1;
static const char *library_name = "";

/* A text as it stands between quotes in JSON; what does not fit is left out. */
static char *quote(const char *text, char *out, ulong room)
{
    ulong used = 0;
    for (; *text && used + 7 < room; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') {
            out[used++] = '\\';
            out[used++] = (char)letter;
        } else if (letter < 32 || letter == 127) {
            used += (ulong)snprintf(out + used, 7, "\\u%04x", letter);
        } else {
            out[used++] = (char)letter;
        }
    }
    out[used] = 0;
    return out;
}

/* One line in one write, so that lines of ranks do not mix. */
static void put(const char *kind, const char *fields)
{
    char line[LINE], name[600];
    snprintf(line, sizeof line, "{\"kedge\":\"%s\",\"host\":\"%s\",\"pid\":%d,\"task\":%ld%s%s}\n", kind,
             quote(host, name, sizeof name), getpid(), task, *fields ? "," : "", fields);
    say(line);
}

static int fail(const char *sentence, const char *detail)
{
    char fields[LINE - 700], text[1024], more[1024];
    snprintf(fields, sizeof fields, "\"reason\":\"%s%s%s\"", quote(sentence, text, sizeof text), *detail ? ": " : "",
             quote(detail, more, sizeof more));
    put("failure", fields);
    return 3;
}

static double now(void)
{
    long time[2] = {0, 0};
    call4(CALL_clock_gettime, 1, (long)time, 0, 0);
    return (double)time[0] + (double)time[1] * 1e-9;
}

static long number_of(const char *text)
{
    long value = 0;
    for (; *text >= '0' && *text <= '9' && value < 1000000000000L; text++)
        value = value * 10 + (*text - '0');
    return value;
}

/* ---- MPI of the image ---- */

static struct {
    void *(*open)(const char *, int);
    void *(*find)(void *, const char *);
    char *(*reason)(void);
} linker;

static int open_linker(void)
{
    void *library;
    linker.open = dlopen, linker.find = dlsym, linker.reason = dlerror;
    if (linker.open && linker.find && linker.reason)
        return 1;
    if (!__libc_dlopen_mode || !__libc_dlsym)
        return 0;
    library = __libc_dlopen_mode("libdl.so.2", (int)0x80000002); /* RTLD_NOW, as dlopen asks for it */
    if (!library)
        return 0;
    *(void **)&linker.open = __libc_dlsym(library, "dlopen");
    *(void **)&linker.find = __libc_dlsym(library, "dlsym");
    *(void **)&linker.reason = __libc_dlsym(library, "dlerror");
    return linker.open && linker.find && linker.reason;
}

static struct {
    int (*init)(int *, char ***);
    int (*finalize)(void);
    int (*rank)(handle, int *);
    int (*size)(handle, int *);
    int (*barrier)(handle);
    int (*reduce)(const void *, void *, int, handle, handle, int, handle);
    int (*allreduce)(const void *, void *, int, handle, handle, handle);
    int (*allgather)(const void *, int, handle, void *, int, handle, handle);
    int (*version)(char *, int *);
    handle world, real, byte, sum, most;
} mpi;

static void *find_library(const char *asked)
{
    static const char names[][24] = {"libmpi.so.40", "libmpi.so.12",      "libmpich.so.12", "libmpi_cray.so.12",
                                     "libmpi.so.20", "libmpi_gnu.so.12", "libmpi.so.80",   "libmpi.so",
                                     "libmpich.so"};
    const int lazy_and_global = 0x101; /* plugins of Open MPI look for its symbols in the program */
    if (*asked) {
        library_name = asked;
        return linker.open(asked, lazy_and_global);
    }
    for (ulong each = 0; each < sizeof names / sizeof *names; each++) {
        void *found = linker.open(names[each], lazy_and_global);
        if (found) {
            library_name = names[each];
            return found;
        }
    }
    return 0;
}

static int open_mpi(const char *asked)
{
    void *library;
    if (!open_linker())
        return fail("the image's libc cannot open libraries: it has no libdl.so.2", "");
    library = find_library(asked);
    if (!library) {
        const char *reason = linker.reason();
        if (!*asked)
            return fail("the image has no MPI library in its library path", "");
        return fail("cannot open the MPI library of the image", reason ? reason : "");
    }
    *(void **)&mpi.version = linker.find(library, "MPI_Get_library_version");
    *(void **)&mpi.init = linker.find(library, "MPI_Init");
    *(void **)&mpi.finalize = linker.find(library, "MPI_Finalize");
    *(void **)&mpi.rank = linker.find(library, "MPI_Comm_rank");
    *(void **)&mpi.size = linker.find(library, "MPI_Comm_size");
    *(void **)&mpi.barrier = linker.find(library, "MPI_Barrier");
    *(void **)&mpi.reduce = linker.find(library, "MPI_Reduce");
    *(void **)&mpi.allreduce = linker.find(library, "MPI_Allreduce");
    *(void **)&mpi.allgather = linker.find(library, "MPI_Allgather");
    if (!mpi.init || !mpi.finalize || !mpi.rank || !mpi.size || !mpi.barrier || !mpi.reduce || !mpi.allreduce ||
        !mpi.allgather)
        return fail("this is no MPI library", library_name);
    mpi.world = linker.find(library, "ompi_mpi_comm_world");
    if (mpi.world) {
        mpi.real = linker.find(library, "ompi_mpi_double");
        mpi.byte = linker.find(library, "ompi_mpi_byte");
        mpi.sum = linker.find(library, "ompi_mpi_op_sum");
        mpi.most = linker.find(library, "ompi_mpi_op_max");
    } else {
        mpi.world = (handle)0x44000000;
        mpi.real = (handle)0x4c00080b;
        mpi.byte = (handle)0x4c00010d;
        mpi.sum = (handle)0x58000003;
        mpi.most = (handle)0x58000001;
    }
    return 0;
}

static int say_version(void)
{
    static char text[16384]; /* MPICH wants 8192 */
    char fields[LINE - 700], quoted[1800], file[512];
    int count = 0;
    if (!mpi.version)
        return fail("this MPI library is older than MPI 3 and does not tell its version", library_name);
    if (mpi.version(text, &count))
        return fail("MPI_Get_library_version failed", library_name);
    snprintf(fields, sizeof fields, "\"machine\":\"" MACHINE "\",\"abi\":\"%s\",\"library\":\"%s\",\"version\":\"%s\"",
             mpi.world == (handle)0x44000000 ? "mpich" : "openmpi", quote(library_name, file, sizeof file),
             quote(text, quoted, sizeof quoted));
    put("version", fields);
    return 0;
}

static int say_world(int rank, int size)
{
    char fields[128];
    double mine = 1, all = 0;
    snprintf(fields, sizeof fields, "\"rank\":%d,\"size\":%d", rank, size);
    put("world", fields);
    if (mpi.allreduce(&mine, &all, 1, mpi.real, mpi.sum, mpi.world) || all != (double)size)
        return fail("MPI_Allreduce over all ranks gave a wrong result", "");
    put("met", fields);
    return 0;
}

/*
 * The integral of 4/(1+x*x). Pieces are always the same and are always added in the same order, so every number of
 * ranks gives the same bits: MPI only adds zeros to each piece.
 */
static int say_pi(int rank, int size, long intervals)
{
    static double mine[CHUNKS], all[CHUNKS];
    char fields[256];
    double start, width, sum = 0;
    long each_chunk = (intervals + CHUNKS - 1) / CHUNKS;
    intervals = each_chunk * CHUNKS;
    width = 1.0 / (double)intervals;
    mpi.barrier(mpi.world);
    start = now();
    for (long chunk = rank; chunk < CHUNKS; chunk += size) {
        double part = 0;
        for (long step = chunk * each_chunk; step < (chunk + 1) * each_chunk; step++) {
            double x = ((double)step + 0.5) * width;
            part += 4.0 / (1.0 + x * x);
        }
        mine[chunk] = part;
    }
    if (mpi.reduce(mine, all, CHUNKS, mpi.real, mpi.sum, 0, mpi.world))
        return fail("MPI_Reduce failed", "");
    for (long chunk = 0; chunk < CHUNKS; chunk++)
        sum += all[chunk];
    if (rank)
        return 0;
    snprintf(fields, sizeof fields, "\"size\":%d,\"pi\":%.15f,\"intervals\":%ld,\"seconds\":%.6f", size, sum * width,
             intervals, now() - start);
    put("pi", fields);
    return 0;
}

static int time_allreduce(int rank, int size, double *from, double *into, long bytes, long rounds)
{
    char fields[256];
    double mine, slowest = 0, expected = (double)size * ((double)size + 1) / 2;
    long count = bytes / (long)sizeof *from, wrong = 0;
    for (long each = 0; each < count; each++)
        from[each] = (double)rank + 1;
    for (int warm = 0; warm < 2; warm++)
        if (mpi.allreduce(from, into, (int)count, mpi.real, mpi.sum, mpi.world))
            return fail("MPI_Allreduce failed", "");
    mpi.barrier(mpi.world);
    mine = now();
    for (long round = 0; round < rounds; round++)
        mpi.allreduce(from, into, (int)count, mpi.real, mpi.sum, mpi.world);
    mine = (now() - mine) / (double)rounds;
    for (long each = 0; each < count; each++)
        wrong += into[each] != expected;
    mpi.reduce(&mine, &slowest, 1, mpi.real, mpi.most, 0, mpi.world);
    if (wrong)
        return fail("MPI_Allreduce gave wrong sums", "");
    if (rank)
        return 0;
    snprintf(fields, sizeof fields, "\"size\":%d,\"bytes\":%ld,\"rounds\":%ld,\"seconds\":%.9f", size,
             count * (long)sizeof *from, rounds, slowest);
    put("allreduce", fields);
    return 0;
}

/* From 8 bytes on, eight times as much each time; fewer rounds the larger it gets. */
static int say_allreduce(int rank, int size, long largest, long rounds)
{
    double *from, *into;
    int status = 0;
    if (largest < 8)
        largest = 8;
    from = calloc((ulong)largest + 8, 1);
    into = calloc((ulong)largest + 8, 1);
    if (!from || !into)
        return fail("no memory for the buffers: give fewer --bytes", "");
    for (long bytes = 8; !status; bytes *= 8) {
        long size_now = bytes < largest ? bytes : largest, turns = rounds;
        for (long limit = 65536; limit < size_now && turns > 5; limit *= 8)
            turns /= 2;
        status = time_allreduce(rank, size, from, into, size_now, turns);
        if (bytes >= largest)
            break;
    }
    return status;
}

/* Host and process-id namespace as a number: processes of one such place can read each other. */
static long long place_number(void)
{
    char link[64] = "";
    unsigned long long value = 14695981039346656037ULL;
    call4(CALL_readlinkat, -100, (long)"/proc/self/ns/pid", (long)link, sizeof link - 1);
    for (const char *each = host; *each; each++)
        value = (value ^ (unsigned char)*each) * 1099511628211ULL;
    for (const char *each = link; *each; each++)
        value = (value ^ (unsigned char)*each) * 1099511628211ULL;
    return (long long)value;
}

/* The number in a link such as user:[4026531837]. */
static long namespace_number(const char *path)
{
    char link[64] = "";
    const char *each = link;
    call4(CALL_readlinkat, -100, (long)path, (long)link, sizeof link - 1);
    while (*each && *each != '[')
        each++;
    return *each ? number_of(each + 1) : 0;
}

/* Reads the next rank's buffer on this host, as MPI does to copy within a node. */
static int say_cma(int rank, int size)
{
    static long long word;
    long long mine[3], *all = calloc((ulong)size * 3, sizeof *all), got = -1;
    char fields[512], reason[128];
    int neighbour = rank;
    long result = 0;
    if (!all)
        return fail("no memory", "");
    prctl(PR_SET_PTRACER, ~0UL, 0, 0, 0); /* Yama lets only ancestors look otherwise */
    word = 1000003LL * (rank + 1);
    mine[0] = place_number(), mine[1] = getpid(), mine[2] = (long long)(ulong)&word;
    if (mpi.allgather(mine, sizeof mine, mpi.byte, all, sizeof mine, mpi.byte, mpi.world))
        return fail("MPI_Allgather failed", "");
    do
        neighbour = (neighbour + 1) % size;
    while (neighbour != rank && all[neighbour * 3] != mine[0]);
    if (neighbour != rank) {
        ulong into[2] = {(ulong)&got, sizeof got}, from[2] = {(ulong)all[neighbour * 3 + 2], sizeof got};
        result = call6(CALL_process_vm_readv, all[neighbour * 3 + 1], (long)into, 1, (long)from, 1, 0);
    }
    mpi.barrier(mpi.world);
    snprintf(fields, sizeof fields,
             "\"rank\":%d,\"size\":%d,\"neighbour\":%d,\"read\":%s,\"error\":\"%s\","
             "\"user_namespace\":%ld,\"mount_namespace\":%ld",
             rank, size, neighbour == rank ? -1 : neighbour, got == 1000003LL * (neighbour + 1) ? "true" : "false",
             result < 0 ? quote(strerror((int)-result), reason, sizeof reason) : "",
             namespace_number("/proc/self/ns/user"), namespace_number("/proc/self/ns/mnt"));
    put("cma", fields);
    free(all);
    return 0;
}

static int run_ranks(const char *command, long intervals, long bytes, long rounds)
{
    int rank = -1, size = 0, status = 2;
    if (mpi.init(0, 0))
        return fail("MPI_Init failed", library_name);
    mpi.rank(mpi.world, &rank);
    mpi.size(mpi.world, &size);
    if (is_same(command, "world"))
        status = say_world(rank, size);
    else if (is_same(command, "pi"))
        status = say_pi(rank, size, intervals);
    else if (is_same(command, "allreduce"))
        status = say_allreduce(rank, size, bytes, rounds);
    else if (is_same(command, "cma"))
        status = say_cma(rank, size);
    mpi.finalize();
    return status;
}

/* The number that the launcher gave this process; the innermost launcher's first. */
static void find_task(void)
{
    static const char names[][24] = {"KEDGE_LAUNCH_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
                                     "PMI_RANK",          "FLUX_TASK_RANK",       "SLURM_PROCID"};
    for (ulong each = 0; each < sizeof names / sizeof *names; each++) {
        const char *value = getenv(names[each]);
        if (value && *value >= '0' && *value <= '9') {
            task = number_of(value);
            return;
        }
    }
}

/* words: the program, the mark, the command, its options */
static int run(int count, char **words, char **variables)
{
    const char *command = count > 2 ? words[2] : "", *library = "";
    long intervals = 100000000, bytes = 64L << 20, rounds = 40;
    int status;
    (void)variables;
    gethostname(host, sizeof host - 1);
    find_task();
    for (int each = 3; each + 1 < count; each += 2) {
        if (is_same(words[each], "--library"))
            library = words[each + 1];
        else if (is_same(words[each], "--task"))
            task = number_of(words[each + 1]);
        else if (is_same(words[each], "--intervals"))
            intervals = number_of(words[each + 1]);
        else if (is_same(words[each], "--bytes"))
            bytes = number_of(words[each + 1]);
        else if (is_same(words[each], "--rounds"))
            rounds = number_of(words[each + 1]);
        else
            exit(fail("the probe does not know this option", words[each]));
    }
    if (!is_same(command, "version") && !is_same(command, "world") && !is_same(command, "pi") &&
        !is_same(command, "allreduce") && !is_same(command, "cma"))
        exit(fail("the probe knows version, world, pi, allreduce and cma", command));
    status = open_mpi(library);
    if (!status && is_same(command, "version"))
        status = say_version();
    else if (!status)
        status = run_ranks(command, intervals < 1 ? 1 : intervals, bytes, rounds < 1 ? 1 : rounds);
    exit(status);
}
