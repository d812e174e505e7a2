// SPDX-License-Identifier: BSD-3-Clause
// Texts: paths that are joined, and what is said to the user, in one piece at the end.

static const char *last_name(const char *path) {
    const char *name = path;
    for (; *path; path++)
        if (*path == '/') name = path + 1;
    return name;
}

// Texts are joined into a buffer; what does not fit makes the path unusable and not another one.
static int join(char *into, size_t room, ...) {
    va_list parts;
    size_t used = 0;
    va_start(parts, room);
    for (const char *part; (part = va_arg(parts, const char *));) {
        size_t count = length(part);
        if (used + count >= room) {
            va_end(parts);
            into[0] = 0;
            return 0;
        }
        memcpy(into + used, part, count);
        used += count;
    }
    va_end(parts);
    into[used] = 0;
    return 1;
}
static const char *number_text(uint64_t number, char *room) { // of at least 24 bytes
    char *at = room + 23;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    return at;
}

static char said[8192];
static size_t said_length;
static void say(const char *text) {
    size_t count = length(text);
    if (count > sizeof said - said_length) count = sizeof said - said_length;
    memcpy(said + said_length, text, count);
    said_length += count;
}
static void say_number(uint64_t number) {
    char room[24];
    say(number_text(number, room));
}
static _Noreturn void end(int status) {
    CALL(WRITE, 2, said, said_length);
    for (;;) CALL(EXIT_GROUP, status, 0, 0);
}
static const char *explain(long number, char *room) {
    switch (number) {
    case 1: return "Operation not permitted";
    case ENOENT: return "No such file or directory";
    case 5: return "Input/output error";
    case 12: return "Cannot allocate memory";
    case EACCES: return "Permission denied";
    case 20: return "Not a directory";
    case ENOSPC: return "No space left on device";
    case EROFS: return "Read-only file system";
    case 36: return "File name too long";
    case EDQUOT: return "Disk quota exceeded";
    }
    join(room, 48, "error ", number_text((uint64_t)number, room + 24), NULL);
    return room;
}
