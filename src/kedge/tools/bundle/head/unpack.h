// SPDX-License-Identifier: BSD-3-Clause
// The payload: read from this file, checked, and written as the files of a copy.

static char own_path[LONGEST]; // of this file
static int status_of_failure;

static _Noreturn void refuse_bundle(uint64_t found, uint64_t expected) {
    say("kedge: ");
    say(own_path);
    if (found < expected) {
        say(" is truncated: it has ");
        say_number(found);
        say(" of ");
        say_number(expected);
        say(" bytes\n");
    } else {
        say(" is damaged: its content does not match its checksum\n");
    }
    say("hint: copy it again\n");
    end(status_of_failure);
}

// The payload in memory, checked; ends with one error where the file is not whole.
static unsigned char *read_payload(void) {
    static unsigned char *payload;
    uint64_t offset = own_index.offset, size = own_index.size;
    struct status status;
    if (payload) return payload;
    int file = (int)CALL4(OPENAT, AT_FDCWD, "/proc/self/exe", O_CLOEXEC, 0);
    if (file < 0) file = (int)CALL4(OPENAT, AT_FDCWD, own_path, O_CLOEXEC, 0);
    if (file < 0 || CALL(FSTAT, file, &status, 0) < 0) {
        char room[48];
        say("kedge: cannot read ");
        say(own_path);
        say(": ");
        say(explain(file < 0 ? -file : 5, room));
        say("\nhint: make it readable: chmod u+r FILE\n");
        end(status_of_failure);
    }
    if ((uint64_t)status.size < offset + size) refuse_bundle((uint64_t)status.size, offset + size);
    payload = get_memory(size);
    if (!payload) {
        say("kedge: no memory to unpack ");
        say(own_path);
        say("\nhint: 'ulimit -v' shows the limit of this shell\n");
        end(status_of_failure);
    }
    CALL(LSEEK, file, offset, 0);
    if (!is_whole(file, (char *)payload, size) || !has_digest(payload, size, own_index.digest))
        refuse_bundle(offset + size, offset + size);
    CALL(CLOSE, file, 0, 0);
    return payload;
}

static uint32_t number_at(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static long write_entry(int folder, const char *name, uint32_t mode, const char *data, size_t size) {
    if ((mode & S_IFMT) == S_IFDIR) return CALL(MKDIRAT, folder, name, 0700);
    long file = CALL4(OPENAT, folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0700);
    if (file < 0) return file;
    long result = write_whole((int)file, data, size);
    // Without the programs, libraries and the mark nothing can say that something else got lost in a crash.
    if (result >= 0 && (mode & 0100 || is_same(name, "complete"))) result = CALL(FSYNC, file, 0, 0);
    CALL(CLOSE, file, 0, 0);
    return result;
}

static long write_entries(int folder, const unsigned char *at, const unsigned char *stop) {
    char name[512];
    while (at < stop) {
        uint32_t mode = number_at(at), size = number_at(at + 4), name_length = number_at(at + 8);
        if (stop - at < 12 || name_length >= sizeof name || (uint64_t)(stop - at) < 12ull + name_length + size) return -5;
        memcpy(name, at + 12, name_length);
        name[name_length] = 0;
        long result = write_entry(folder, name, mode, (const char *)at + 12 + name_length, size);
        if (result < 0) return result;
        at += 12ull + name_length + size;
    }
    return 0;
}

static long unpack_into(int folder) {
    const unsigned char *payload = read_payload(), *stop = payload + own_index.size;
    uint32_t blocks = number_at(payload);
    const unsigned char *table = payload + 4, *at = table + 8ull * blocks;
    struct stream *in = get_memory(sizeof *in);
    long result = in ? 0 : -12;
    for (uint32_t each = 0; each < blocks && result >= 0; each++, table += 8) {
        size_t size = number_at(table), packed = number_at(table + 4);
        unsigned char *block = get_memory(size);
        if (!block) result = -12;
        else if (at > stop || packed > (size_t)(stop - at) || !inflate(in, at, packed, block, size)) result = -5;
        else result = write_entries(folder, block, block + size);
        give_back(block, size);
        at += packed;
    }
    give_back(in, sizeof *in);
    return result;
}
