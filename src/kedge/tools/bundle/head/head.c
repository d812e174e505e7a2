// SPDX-License-Identifier: BSD-3-Clause
/* The head of a bundle: the first bytes of the one file that is all of kedge.
 *
 * It finds the unpacked copy of what follows it in the file, makes that copy where this node has none, and becomes the
 * interpreter in it. It asks nothing of the host but a kernel of 4.18 or newer: no libc, no loader, no other program.
 *
 * Its index is filled in by `write_bundle.py`. A copy with an empty index stands as bin/python3 in the unpacked copy:
 * that is sys.executable, which starts the interpreter beside it with the loader and the libraries beside it.
 *
 *   payload    u32 blocks, per block u32 bytes, u32 packed bytes; then the blocks, each a raw deflate stream
 *   block      entries: u32 mode, u32 bytes, u32 length of the name; the name; the content. The last one is `complete`.
 *   complete   a line "BYTES NAME" for each file without which the interpreter cannot begin: looked at by every start
 *              none of them was written to after this one; once a day a start sets its time, which tells unused copies
 *
 * scripts/build-bundle-head makes it for each machine.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

static const char made_of[] __attribute__((used)) = "kedge-bundle-head made of " MADE_OF;

struct index {
    char magic[16];
    uint64_t offset, size, unpacked; // of the payload, in the file and in memory
    unsigned char digest[32];        // sha256 of the payload
};
static volatile struct index own_index __attribute__((section(".data"), used)) = {"kedge-bundle-1\n", 0, 0, 0, {0}};

enum { LONGEST = 4096, MOST_REASONS = 6, MOST_ROOTS = 100, OWN_FAILURE = 255, FILE_PROBLEM = 30 };
enum { A_DAY = 24 * 60 * 60, A_MONTH = 30 * A_DAY };

// One unit: each part uses those before it.
#include "no_libc.h"
#include "kernel.h"
#include "text.h"
#include "files.h"
#include "sha256.h"
#include "deflate.h"
#include "unpack.h"
#include "copy.h"
#include "places.h"
#include "settings.h"

// Become the interpreter of the copy at folder_path; returns why that failed. The loader is told where its libraries
// are by an option, because a variable would reach every program that kedge starts.
static long become_python(int argc, char **argv, int skipped, const char *verb, int is_plain) {
    static char loader[LONGEST], libraries[LONGEST], python[LONGEST], interpreter[LONGEST], start[LONGEST];
    static char bundle[LONGEST + 8];
    const char **words = get_memory(((size_t)argc + 16) * sizeof *words);
    int count = 0;
    if (!words) return -12;
    if (!join(loader, sizeof loader, folder_path, "/so/ld.so", NULL) ||
        !join(libraries, sizeof libraries, folder_path, "/so", NULL) ||
        !join(python, sizeof python, folder_path, "/bin/python3", NULL) ||
        !join(interpreter, sizeof interpreter, folder_path, "/bin/interpreter", NULL) ||
        !join(start, sizeof start, folder_path, "/start.pyc", NULL))
        return -36;
    const char *const first[] = {loader, "--library-path", libraries, "--argv0", python, interpreter};
    for (size_t each = 0; each < sizeof first / sizeof *first; each++) words[count++] = first[each];
    if (own_index.size) {
        join(bundle, sizeof bundle, "kedge=", own_path, NULL);
        words[count++] = "-X";
        words[count++] = bundle;
    }
    if (!is_plain) {
        words[count++] = "-IS";
        words[count++] = start;
    }
    if (verb) words[count++] = verb;
    for (int each = skipped; each < argc; each++) words[count++] = argv[each];
    words[count] = NULL;
    return CALL(EXECVE, loader, words, environment);
}

static void find_own_path(char **argv, const uint64_t *auxiliary) {
    static const char gone[] = " (deleted)";
    long size = CALL4(READLINKAT, AT_FDCWD, "/proc/self/exe", own_path, sizeof own_path - 1);
    size_t end_at = size > 0 ? (size_t)size : 0;
    own_path[end_at] = 0;
    if (end_at > sizeof gone && is_same(own_path + end_at - (sizeof gone - 1), gone)) own_path[end_at - (sizeof gone - 1)] = 0;
    if (own_path[0] == '/') return;
    for (; auxiliary[0]; auxiliary += 2)
        if (auxiliary[0] == AT_EXECFN) join(own_path, sizeof own_path, (const char *)auxiliary[1], NULL);
    if (!own_path[0] && argv[0]) join(own_path, sizeof own_path, argv[0], NULL);
}

static _Noreturn void start_beside(int argc, char **argv) {
    char room[48];
    long result = -ENOENT;
    size_t cut = length(own_path);
    for (int parts = 0; parts < 2 && cut; parts++)
        while (cut && own_path[--cut] != '/') continue;
    memcpy(folder_path, own_path, cut);
    folder_path[cut] = 0;
    if (is_complete()) result = become_python(argc, argv, 1, NULL, 1);
    say("kedge: cannot start Python in ");
    say(folder_path);
    say(": ");
    say(explain(-result, room));
    say("\nhint: start kedge again, which unpacks it anew; if this is a bundle, it is truncated: copy it again\n");
    end(FILE_PROBLEM);
}

static _Noreturn void refuse_places(void) {
    say("kedge: no directory of this node can hold the unpacked files of ");
    say(own_path);
    say("\n");
    for (int each = 0; each < reason_count; each++) {
        say("  ");
        say(reasons[each][0]);
        say(": ");
        say(reasons[each][1]);
        say("\n");
    }
    say("hint: choose a directory of your own with ");
    say_number((own_index.unpacked >> 20) + 1);
    say(" MiB of free space: KEDGE_NODEDIR=DIRECTORY\n");
    end(status_of_failure);
}

static int starts_container(int argc, char **argv) {
    static const char *const verbs[] = {"exec", "run", "shell", "test"};
    for (int each = 1; each < argc && (each == 1 || argv[each - 1][0] == '-'); each++)
        for (size_t verb = 0; verb < sizeof verbs / sizeof *verbs; verb++)
            if (is_same(argv[each], verbs[verb])) return 1;
    return 0;
}

__attribute__((used, noreturn)) void begin(uint64_t *stack) {
    static char places[4][LONGEST];
    char room[48];
    int argc = (int)stack[0], skipped = 1, is_plain = 0;
    char **argv = (char **)(stack + 1);
    const char *verb = NULL;
    environment = argv + argc + 1;
    uint64_t *auxiliary = (uint64_t *)environment;
    while (*auxiliary) auxiliary++;
    find_own_path(argv, auxiliary + 1);
    if (!own_index.size) start_beside(argc, argv);
    status_of_failure = starts_container(argc, argv) ? OWN_FAILURE : FILE_PROBLEM;
    if (argc > 0 && is_same(last_name(argv[0]), "kedge-pyxis")) {
        verb = "pyxis"; // Pyxis gives its importer no word before `get`
    } else if (argc > 1 && is_same(argv[1], "python")) {
        is_plain = 1;
        skipped = 2;
    }
    for (int each = 0; each < 16; each++) {
        static const char digits[] = "0123456789abcdef";
        hex_digest[2 * each] = digits[own_index.digest[each] >> 4];
        hex_digest[2 * each + 1] = digits[own_index.digest[each] & 15];
    }
    int count = list_places(places);
    for (int each = 0; each < count; each++)
        if (enter_place(places[each], 0) && is_complete()) {
            long result = become_python(argc, argv, skipped, verb, is_plain);
            if (result == -7) { // E2BIG
                say("kedge: too many arguments or variables for this kernel\nhint: 'getconf ARG_MAX' shows the limit\n");
                end(status_of_failure);
            }
            give_reason(places[each], explain(-result, room));
        }
    long mask = CALL(UMASK, 077, 0, 0);
    for (int each = 0; each < count; each++)
        if (unpack_at(places[each])) {
            CALL(UMASK, mask, 0, 0);
            give_reason(places[each], explain(-become_python(argc, argv, skipped, verb, is_plain), room));
            CALL(UMASK, 077, 0, 0);
        }
    refuse_places();
}
