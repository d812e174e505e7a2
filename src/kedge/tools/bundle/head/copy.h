// SPDX-License-Identifier: BSD-3-Clause
// The unpacked copy: whether it is whole, and copies of other bundles that nobody has used for long.

static char hex_digest[33];
static char folder_path[LONGEST]; // the unpacked copy: absolute
static const char *reasons[MOST_REASONS][2];
static int reason_count;

static void give_reason(const char *place, const char *reason) {
    static char kept[8192];
    static size_t used;
    size_t place_size = length(place) + 1, reason_size = length(reason) + 1;
    for (int each = 0; each < reason_count; each++)
        if (is_same(reasons[each][0], place)) return;
    if (reason_count == MOST_REASONS || place_size + reason_size > sizeof kept - used) return;
    reasons[reason_count][0] = memcpy(kept + used, place, place_size);
    reasons[reason_count++][1] = memcpy(kept + used + place_size, reason, reason_size);
    used += place_size + reason_size;
}

static int64_t time_now(void) {
    struct moment now = {0, 0};
    CALL(CLOCK_GETTIME, 0, &now, 0);
    return now.seconds;
}

static int is_later(struct moment one, struct moment other) {
    return one.seconds > other.seconds || (one.seconds == other.seconds && one.fraction > other.fraction);
}

// Whether the files that the mark names are there, with their sizes, and none was written to after the mark.
static int has_all(char *text, struct moment marked) {
    char path[LONGEST];
    struct status status;
    for (char *at = text; *at;) {
        int64_t expected = 0;
        for (; *at >= '0' && *at <= '9'; at++) expected = expected * 10 + (*at - '0');
        if (*at++ != ' ') return 0;
        char *name = at;
        while (*at && *at != '\n') at++;
        if (*at != '\n') return 0;
        *at++ = 0;
        if (!join(path, sizeof path, folder_path, "/", name, NULL)) return 0;
        if (CALL4(FSTATAT, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) < 0) return 0;
        if ((status.mode & S_IFMT) != S_IFREG || status.size != expected || is_later(status.written, marked)) return 0;
    }
    return 1;
}

// Whether the copy at folder_path is whole, by its mark. The mark's time is the day of its last use: `remove_unused`.
static int is_complete(void) {
    static char text[16384];
    char path[LONGEST];
    struct status mark;
    if (!join(path, sizeof path, folder_path, "/complete", NULL)) return 0;
    int file = (int)CALL4(OPENAT, AT_FDCWD, path, O_NOFOLLOW | O_CLOEXEC, 0);
    if (file < 0) return 0;
    long size = CALL(FSTAT, file, &mark, 0) < 0 ? 0 : CALL(READ, file, text, sizeof text - 1);
    text[size > 0 ? size : 0] = 0;
    int is_whole_copy = size > 0 && has_all(text, mark.written);
    if (is_whole_copy && time_now() - mark.written.seconds > A_DAY) CALL4(UTIMENSAT, file, NULL, NULL, 0);
    CALL(CLOSE, file, 0, 0);
    return is_whole_copy;
}

static int has_part(const char *text, const char *part) {
    size_t count = length(part);
    for (size_t left = length(text); left >= count; left--, text++)
        if (!memcmp(text, part, count)) return 1;
    return 0;
}

// Whether a process runs from the copy with this name: its program is the loader in it. If in doubt, yes.
RARE static int is_in_use(const char *name) {
    char room[2048] __attribute__((aligned(8))), program[64], target[LONGEST];
    int processes = (int)CALL4(OPENAT, AT_FDCWD, "/proc", O_DIRECTORY | O_CLOEXEC, 0), is_used = processes < 0;
    long got;
    while (!is_used && (got = CALL(GETDENTS64, processes, room, sizeof room)) > 0)
        for (long at = 0; at < got; at += ((struct entry *)(room + at))->size) {
            const char *process = ((struct entry *)(room + at))->name;
            if (*process < '1' || *process > '9' || !join(program, sizeof program, process, "/exe", NULL)) continue;
            long size = CALL4(READLINKAT, processes, program, target, sizeof target - 1);
            target[size > 0 ? size : 0] = 0;
            is_used |= has_part(target, name);
        }
    CALL(CLOSE, processes, 0, 0);
    return is_used;
}

// The day that a copy was last used, or what is left of one that somebody stopped to unpack or remove was written.
RARE static int64_t last_used(int folder, const char *name) {
    char mark[320];
    struct status status;
    if (!join(mark, sizeof mark, name, "/complete", NULL)) return time_now();
    if (CALL4(FSTATAT, folder, mark, &status, AT_SYMLINK_NOFOLLOW) < 0 &&
        CALL4(FSTATAT, folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return time_now();
    return status.written.seconds;
}

// Remove copies of other bundles, which versions before this one left: those that nobody used for a month.
RARE static void remove_unused(int folder) {
    char room[2048] __attribute__((aligned(8))), mark[320];
    long got;
    CALL(LSEEK, folder, 0, 0);
    while ((got = CALL(GETDENTS64, folder, room, sizeof room)) > 0)
        for (long at = 0; at < got; at += ((struct entry *)(room + at))->size) {
            const char *name = ((struct entry *)(room + at))->name;
            int is_copy = length(name) == sizeof hex_digest - 1 && !is_same(name, hex_digest);
            int is_rest = !memcmp(name, "new-", 4) || !memcmp(name, "old-", 4);
            if (!(is_copy || is_rest) || time_now() - last_used(folder, name) < A_MONTH || is_in_use(name)) continue;
            if (join(mark, sizeof mark, name, "/complete", NULL)) CALL(UNLINKAT, folder, mark, 0); // nobody begins now
            remove_tree(folder, name);
        }
}
